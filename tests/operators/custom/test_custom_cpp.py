"""Operators of one's own in C++: what they compute, how they are made, what goes wrong while they run"""

import ctypes
import gc
import math
import pickle
import threading
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError, OperatorError
from d5ray.operators.custom.cpp.element_types import TYPES
from tests.operators.custom.listings import IPOWOP, QUICK, both, ipowop


def array(dtype: str, shape: tuple[int, ...] = (2, 3)) -> Any:
    """1, 2, 3, … of a type."""
    return (np.arange(math.prod(shape)) % 4 + 1).reshape(shape).astype(d5.TensorDescriptor(dtype).dtype)


@pytest.mark.full
def test_every_type_of_elements_passes_between_the_languages() -> None:
    """One operator with an input and an output of each, which swaps the smallest and the largest number."""
    parameters = [f"const {name} *x{i}" for i, name in enumerate(TYPES.values())]
    parameters += [f"{name} *y{i}" for i, name in enumerate(TYPES.values())]
    body = "".join(f"y{i}[0] = x{i}[1]; y{i}[1] = x{i}[0];" for i in range(len(TYPES)))
    code = (
        f"struct swapped : deep500::CustomOperator {{ void forward({', '.join(parameters)}) {{ {body} }} }};"
    )
    tensors = [d5.TensorDescriptor(name, (2,)) for name in TYPES]
    op = d5.compile_custom_cppop("swapped", code, tensors, tensors, flags=QUICK)
    inputs = [_extremes(each.dtype) for each in tensors]
    for found, given in zip(op.forward(*inputs), inputs, strict=True):
        assert found.dtype == given.dtype
        assert found.tobytes() == given[::-1].tobytes()


def _extremes(dtype: Any) -> Any:
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        return np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
    import ml_dtypes  # noqa: PLC0415 - for bfloat16

    limits: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return np.array([limits.smallest_subnormal, limits.max], dtype)


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_numbers_of_16_bits_are_rounded_as_numpy_rounds_them(dtype: str) -> None:
    """Every pattern survives the way to float and back; sums round to even, also the smallest."""
    code = """
    template <typename T> struct added : deep500::CustomOperator {
        uint64_t n;
        added(const deep500::tensor_t *x, int, const deep500::tensor_t *, int) : n(x->elements()) {}
        void forward(const T *a, const T *b, T *sum, T *same) {
            for (uint64_t i = 0; i < n; ++i) { sum[i] = a[i] + b[i]; same[i] = T(float(a[i])); }
        }
    };"""
    anything = d5.TensorDescriptor(dtype, ("n",))
    for definitions in ({}, {"D500_NO_FLOAT16": 1}):  # by the compiler's own type, and without one
        op = d5.compile_custom_cppop(
            "added", code, [anything] * 2, [anything] * 2, flags=QUICK, definitions=definitions
        )
        every = np.arange(2**16, dtype=np.uint16).view(anything.dtype)
        other = np.random.default_rng(0).permutation(every)
        with np.errstate(all="ignore"):
            total, same = op.forward(every, other)
            expected = (every.astype("float32") + other.astype("float32")).astype(every.dtype)
            np.testing.assert_array_equal(total.astype("float32"), expected.astype("float32"))
            numbers = ~np.isnan(every.astype("float32"))
            assert np.isnan(same[~numbers].astype("float32")).all()
        np.testing.assert_array_equal(same.view(np.uint16)[numbers], every.view(np.uint16)[numbers])


def test_inputs_of_any_layout_and_size_are_taken() -> None:
    """Transposed, reversed, unaligned, without elements, without axes."""
    op = ipowop("float64")
    x = array("float64", (3, 4))
    packed = np.zeros(97, dtype=np.uint8)[1:].view("float64").reshape(3, 4)
    packed[:] = x
    for each in (x.T, x[::-1, ::2], packed, x[:0], np.asarray(x[0, 0])):
        found = op.forward(each)
        assert found.shape == each.shape
        np.testing.assert_array_equal(found, each**3)


@pytest.mark.full
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_as_many_openmp_threads_compute_as_are_asked_for(threads: int) -> None:
    """The number is that of the call, and the calling thread has its own number back afterwards."""
    code = """
    struct counted : deep500::CustomOperator {
        void forward(const int64_t *x, int64_t *y) {
            y[0] = 0;
            y[1] = omp_get_max_threads();
            #pragma omp parallel for reduction(+ : y[:1])
            for (int i = 0; i < 1000; ++i) y[0] += x[i] * omp_get_num_threads();
        }
    };"""
    op = d5.compile_custom_cppop(
        "counted", code, [d5.TensorDescriptor("int64", (1000,))], [d5.TensorDescriptor("int64", (2,))]
    )
    x = np.arange(1000)
    before = int(op.forward(x)[1])
    (found,) = op.run_forward(np, [x], threads)
    np.testing.assert_array_equal(found, [x.sum() * threads, threads])
    assert int(op.forward(x)[1]) == before


CALLED = """
struct called : public deep500::CustomOperator {
    int64_t calls = 0, whole;
    double scale;
    std::string text;
    called(int whole, double scale, bool on, const char *text)
        : whole(on ? whole : 0), scale(scale), text(text) {
        if (scale < 0) throw std::invalid_argument("the scale must not be negative");
    }
    ~called() { if (released) ++*released; }
    int64_t *released = nullptr;
    void forward(const double *x, double *y) {
        if (x[0] > 100) throw std::runtime_error(text);
        ++calls;
        y[0] = x[0] * scale + whole;
    }
    int64_t report(void *data) override {
        if (data) released = static_cast<int64_t *>(data);
        return calls;
    }
};
"""


def called(*arguments: Any) -> d5.CustomCppOp:
    """An operator with a constructor of many kinds of arguments."""
    one = d5.TensorDescriptor("float64", (1,))
    return d5.compile_custom_cppop("called", CALLED, [one], [one], arguments=arguments, flags=QUICK)


@pytest.mark.full
def test_arguments_report_and_exceptions_pass_between_the_languages() -> None:
    """Integers, numbers, booleans, texts; int64 back; what() of what is thrown."""
    op = called(3, 2.5, True, "too large")
    x = np.array([2.0])
    assert op.forward(x) == 8.0
    assert op.forward(x) == 8.0
    assert op.report() == 2 and not op.differentiable  # it has no backward
    with pytest.raises(OperatorError, match=r"^forward of the C\+\+ operator called failed: too large$"):
        op.forward(np.array([101.0]))
    with pytest.raises(
        OperatorError, match=r"the constructor of .* called failed: the scale must not be negative"
    ):
        called(3, -1.0, True, "").forward(x)
    with pytest.raises(OperatorError, match="4294967296 does not fit the type"):
        called(2**32, 1.0, True, "").forward(x)


@pytest.mark.full
def test_objects_are_destroyed_with_the_operator() -> None:
    """The destructor runs, once."""
    op = called(0, 1.0, True, "")
    op.forward(np.ones(1))
    released = ctypes.c_int64(0)
    op.report(ctypes.addressof(released))
    del op
    gc.collect()
    assert released.value == 1


def test_arguments_of_no_known_kind_are_refused() -> None:
    """Before anything is compiled."""
    one = d5.TensorDescriptor("float64", (1,))
    for wrong in ([1.0, None], 5, (2**63,)):
        with pytest.raises(ConfigurationError, match=r"arguments of the C\+\+ operator called are"):
            d5.compile_custom_cppop("called", CALLED, [one], [one], arguments=wrong)  # type: ignore[arg-type]


@pytest.mark.full
def test_the_original_form_names_and_makes_its_class_itself() -> None:
    """`create_new_op`, `D500_REGISTER_OP`, a type by definition, as in Deep500's tutorial."""
    code = (
        "#include <deep500/deep500.h>\n#include <cmath>\n"
        + IPOWOP
        + """
D500_EXPORTED void *create_new_op(deep500::tensor_t *input_descriptors, int num_inputs,
                                  deep500::tensor_t *output_descriptors, int num_outputs) {
    size_t size = 1;
    for (int i = 0; i < input_descriptors[0].dims; ++i) size *= input_descriptors[0].sizes[i];
    return new ipowop<DTYPE>(size);
}
D500_REGISTER_OP(ipowop<DTYPE>);
"""
    )
    tensor = d5.tensordesc((2, 3), d5.float32)
    op = d5.compile_custom_cppop(
        "power", code, [tensor], [tensor], definitions={"DTYPE": "float", "DPOWER": 2}, flags=QUICK
    )
    np.testing.assert_array_equal(op.forward(array("float32")), array("float32") ** 2)


@pytest.mark.full
def test_a_class_is_named_with_its_arguments_where_these_are_not_one_type() -> None:
    """`scaled<float, 3>`, in a namespace."""
    code = """
    namespace mine {
    template <typename T, int factor> struct scaled : deep500::CustomOperator {
        void forward(const T *x, T *y) { y[0] = x[0] * factor; }
    };
    }"""
    one = d5.TensorDescriptor("float32", (1,))
    op = d5.compile_custom_cppop("mine::scaled<float, 3>", code, [one], [one], flags=QUICK)
    assert op.forward(np.array([2.0], "float32")) == 6.0


def test_inputs_that_do_not_fit_are_told() -> None:
    """Type, number, shape, and one that is left out."""
    op = both("float64")
    assert (op.num_inputs, op.num_outputs, op.differentiable) == (2, 2, True)
    a = array("float64")
    with pytest.raises(
        ConfigurationError, match=r"input 1 of the operator both is float32 .*expected float64"
    ):
        op.forward(a, a.astype("float32"))
    with pytest.raises(ConfigurationError, match="both takes 2 inputs, found 1"):
        op.forward(a)
    with pytest.raises(ConfigurationError, match="rows is 2 elsewhere, and 1 on axis 0"):
        op.forward(a, a[:1])
    with pytest.raises(ConfigurationError, match="needs its input 1, which is left out"):
        op.run_forward(np, [a, None])
    with pytest.raises(ConfigurationError, match="float64"):
        op.forward(a, a.astype(">f8"))


def test_a_type_that_cpp_has_not_is_told() -> None:
    """Complex numbers, for one."""
    with pytest.raises(ConfigurationError, match=r"ipowop has a tensor complex64 .*know the types float32"):
        ipowop("complex64")


@pytest.mark.full
def test_outputs_whose_shape_nobody_says_are_told() -> None:
    """A name that no input has."""
    x, y = d5.TensorDescriptor("float32", ("n",)), d5.TensorDescriptor("float32", ("m",))
    op = d5.compile_custom_cppop(
        "ipowop", IPOWOP, [x], [y], definitions={"DPOWER": 2}, arguments=(3,), flags=QUICK
    )
    with pytest.raises(
        ConfigurationError, match=r"ipowop does not say what its outputs are .* or define infer"
    ):
        op.forward(np.ones(3, "float32"))


def test_an_operator_travels_as_its_code() -> None:
    """And is not compiled again where it has been."""
    op = both("float64")
    copy = pickle.loads(pickle.dumps(op))
    a = array("float64")
    np.testing.assert_array_equal(copy.forward(a, a)[1], a + a)


def test_other_threads_of_python_run_during_a_call() -> None:
    """An operator waits for a flag that another thread sets: with the interpreter locked it never would."""
    code = """
    #include <atomic>
    #include <chrono>
    struct waits : deep500::CustomOperator {
        void forward(const int64_t *address, int64_t *seen) {
            auto *flag = reinterpret_cast<std::atomic<int64_t> *>(*address);
            const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
            flag[0] = 1;
            while (flag[1] == 0 && std::chrono::steady_clock::now() < until) {}
            *seen = flag[1];
        }
    };"""
    one = d5.TensorDescriptor("int64", (1,))
    op = d5.compile_custom_cppop("waits", code, [one], [one], flags=QUICK)
    flags = np.zeros(2, dtype=np.int64)
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(int(op.forward(np.array([flags.ctypes.data]))[0])))
    thread.start()
    while flags[0] == 0 and thread.is_alive():
        pass
    flags[1] = 7
    thread.join()
    assert seen == [7]
