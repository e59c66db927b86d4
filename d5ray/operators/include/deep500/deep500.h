// What an operator in C++ is written with: deep500::CustomOperator, descriptors of tensors, 16-bit numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "deep500/float16.h"

#ifdef _MSC_VER
#define D500_EXPORTED extern "C" __declspec(dllexport)
#else
#define D500_EXPORTED extern "C" __attribute__((visibility("default")))
#endif

namespace deep500 {

enum tensortype_t {
    TT_VOID = 0,
    TT_INT8,
    TT_INT16,
    TT_INT32,
    TT_INT64,
    TT_UINT8,
    TT_UINT16,
    TT_UINT32,
    TT_UINT64,
    TT_HALF,
    TT_FLOAT,
    TT_DOUBLE,
    TT_BITSET,
    TT_BFLOAT16,
    TT_BOOL,
    TT_LEN,
};

enum tensororder_t {
    TORD_IRRELEVANT = 0,
    TORD_NCHW,
    TORD_NHWC,
    TORD_LEN,
};

// The element type and the sizes of a tensor, as the constructor of an operator can ask for them.
struct tensor_t {
    tensortype_t type;
    tensororder_t order;
    uint8_t dims;
    uint64_t *sizes;

    uint64_t elements() const {
        uint64_t product = 1;
        for (int axis = 0; axis < dims; ++axis) product *= sizes[axis];
        return product;
    }
};

// Derive from this class and write
//
//     void forward(const T *input, ..., T *output, ...);
//     void backward(const T *output_gradient, ..., const T *input, ..., const T *output, ...,
//                   T *input_gradient, ...);
//
// with one pointer for each tensor, to its elements in C order. Without `backward` the operator has no
// gradient. `forward_cuda` and `backward_cuda` get pointers to memory of the GPU; they are called where
// `supports_cuda` says so, and launch their kernels on `current_stream()`.
//
// The class is constructed with the arguments that Python gives. Where it gives none, the constructor may
// take `(const tensor_t *inputs, int number_of_inputs, const tensor_t *outputs, int number_of_outputs)`.
// An exception that leaves a method becomes an error in Python.
class CustomOperator {
public:
    CustomOperator() {}
    virtual ~CustomOperator() {}

    virtual bool supports_cuda() { return false; }

    // Whatever the operator wants to tell: bytes communicated, calls made. Python's `op.report()`.
    virtual int64_t report(void *data) {
        (void)data;
        return 0;
    }
};

// The CUDA stream (a cudaStream_t) on which the framework computes.
void *current_stream();

}  // namespace deep500

// The form of the first Deep500: the operator is named here, with its types, and made by a function
// `create_new_op(inputs, number_of_inputs, outputs, number_of_outputs)` of your own.
#define D500_REGISTER_OP(...)        \
    namespace deep500 {              \
    namespace binding {              \
    using registered = __VA_ARGS__;  \
    }                                \
    }                                \
    static_assert(true, "")
