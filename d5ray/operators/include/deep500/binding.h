// What the generated wrapper of an operator is made of: choosing its class, constructing it, guarding calls.
#pragma once

#include <type_traits>
#include <utility>

#include "deep500/deep500.h"

namespace deep500 {
namespace binding {

thread_local std::string message;
thread_local void *stream = nullptr;

// The class itself where the name is one, and where it is a template the class that it gives for T.
template <template <typename...> class Template, typename T>
Template<T> *chosen(int);
template <typename Class, typename T>
Class *chosen(int);

// Whether the class has any member of a name: if so, the name is ambiguous beside a second one.
#define D500_DEFINE_HAS(member)                                                            \
    struct second_##member {                                                               \
        void member();                                                                     \
    };                                                                                     \
    template <typename Op>                                                                 \
    struct beside_##member : Op, second_##member {};                                       \
    template <typename Op, typename = void>                                                \
    struct has_##member : std::true_type {};                                               \
    template <typename Op>                                                                 \
    struct has_##member<Op, std::void_t<decltype(&beside_##member<Op>::member)>>           \
        : std::false_type {};                                                              \
    template <typename Signature, typename = void>                                         \
    struct takes_##member : std::false_type {};                                            \
    template <typename Op, typename... Pointers>                                           \
    struct takes_##member<                                                                 \
        Op(Pointers...),                                                                   \
        std::void_t<decltype(std::declval<Op &>().member(std::declval<Pointers>()...))>>   \
        : std::true_type {};

D500_DEFINE_HAS(forward)
D500_DEFINE_HAS(backward)
D500_DEFINE_HAS(forward_cuda)
D500_DEFINE_HAS(backward_cuda)

// An integer of Python, which becomes whatever the constructor takes, or an error where it does not fit.
struct integer {
    int64_t value;

    template <typename T, typename = std::enable_if_t<std::is_arithmetic<T>::value>>
    operator T() const {
        const T converted = static_cast<T>(value);
        const bool fits = !std::is_integral<T>::value || std::is_same<T, bool>::value ||
                          (static_cast<int64_t>(converted) == value && (converted < T(0)) == (value < 0));
        if (!fits)
            throw std::out_of_range("the argument " + std::to_string(value) +
                                    " does not fit the type that the constructor takes");
        return converted;
    }
};

template <typename Op>
Op *constructed(const tensor_t *inputs, int number_of_inputs,
                const tensor_t *outputs, int number_of_outputs) {
    if constexpr (std::is_constructible<Op, const tensor_t *, int, const tensor_t *, int>::value) {
        return new Op(inputs, number_of_inputs, outputs, number_of_outputs);
    } else {
        static_assert(std::is_default_constructible<Op>::value,
                      "d5ray: the constructor takes arguments, but none are given: "
                      "give them as arguments=(...)");
        return new Op();
    }
}

// For the time of a call, the calling thread's parallel regions have so many threads.
struct Threads {
#ifdef _OPENMP
    int before = 0;

    explicit Threads(int32_t wanted) {
        if (wanted > 0 && wanted != omp_get_max_threads()) {
            before = omp_get_max_threads();
            omp_set_num_threads(wanted);
        }
    }
    ~Threads() {
        if (before > 0) omp_set_num_threads(before);
    }
#else
    explicit Threads(int32_t) {}
    ~Threads() {}
#endif
};

// 0 where the call returns, 1 where an exception leaves it, whose text is kept.
template <typename Call>
int32_t guarded(int32_t threads, Call &&call) noexcept {
    try {
        const Threads limited(threads);
        call();
        return 0;
    } catch (const std::exception &error) {
        try {
            message = error.what();
        } catch (...) {
        }
    } catch (...) {
        try {
            message = "an exception that is no std::exception";
        } catch (...) {
        }
    }
    return 1;
}

}  // namespace binding

void *current_stream() { return binding::stream; }

}  // namespace deep500
