// The 16-bit numbers as types of C++, which computes with them as float: deep500::float16, deep500::bfloat16.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#ifdef __CUDACC__
#define D500_EVERYWHERE __host__ __device__
#else
#define D500_EVERYWHERE
#endif

namespace deep500 {
namespace bits {

D500_EVERYWHERE inline float float_of(uint32_t pattern) {
    float value;
    std::memcpy(&value, &pattern, sizeof(value));
    return value;
}

D500_EVERYWHERE inline uint32_t of_float(float value) {
    uint32_t pattern;
    std::memcpy(&pattern, &value, sizeof(pattern));
    return pattern;
}

// IEEE 754 binary16, ties to even. By the compiler's own type where it has one: one instruction, vectorised.
#if defined(__FLT16_MANT_DIG__) && !defined(D500_NO_FLOAT16) && !defined(__CUDACC__)
D500_EVERYWHERE inline float half_to_float(uint16_t half) {
    _Float16 value;
    std::memcpy(&value, &half, sizeof(value));
    return static_cast<float>(value);
}

D500_EVERYWHERE inline uint16_t float_to_half(float number) {
    _Float16 value = static_cast<_Float16>(number);
    uint16_t half;
    std::memcpy(&half, &value, sizeof(half));
    return half;
}
#else
D500_EVERYWHERE inline float half_to_float(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    const uint32_t rest = half & 0x7fffu;
    if (rest >= 0x7c00u) return float_of(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));  // infinity, NaN
    if (rest >= 0x0400u) return float_of(sign | ((rest << 13) + 0x38000000u));           // normal
    const float tiny = static_cast<float>(rest) * 5.9604644775390625e-08f;               // multiples of 2^-24
    return sign ? -tiny : tiny;
}

D500_EVERYWHERE inline uint16_t float_to_half(float number) {
    const uint32_t pattern = of_float(number);
    const uint32_t sign = (pattern >> 16) & 0x8000u;
    const uint32_t rest = pattern & 0x7fffffffu;
    if (rest > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((rest >> 13) & 0x3ffu));  // NaN
    if (rest >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u); // infinity
    if (rest < 0x38800000u) {  // below 2^-14: adding 0.5 lets the processor round to a multiple of 2^-24
        const uint32_t rounded = of_float(float_of(rest) + 0.5f) - 0x3f000000u;
        return static_cast<uint16_t>(sign | rounded);
    }
    return static_cast<uint16_t>(sign | ((rest - 0x38000000u + 0xfffu + ((rest >> 13) & 1u)) >> 13));
}
#endif

// The upper half of a float, ties to even.
D500_EVERYWHERE inline float bfloat_to_float(uint16_t upper) {
    return float_of(static_cast<uint32_t>(upper) << 16);
}

D500_EVERYWHERE inline uint16_t float_to_bfloat(float number) {
    const uint32_t pattern = of_float(number);
    const bool is_nan = (pattern & 0x7fffffffu) > 0x7f800000u;
    const uint32_t rounded = pattern + 0x7fffu + ((pattern >> 16) & 1u);
    return static_cast<uint16_t>((is_nan ? pattern | 0x400000u : rounded) >> 16);
}

}  // namespace bits

// A number that is kept in 16 bits. It becomes a float by itself, and a float becomes it; where both could
// happen, as in `x > 0 ? x : 0`, say which: `x > 0 ? x : T(0)`.
template <float (*Widen)(uint16_t), uint16_t (*Narrow)(float)>
struct number16 {
    uint16_t pattern;

    number16() = default;
    D500_EVERYWHERE number16(float value) : pattern(Narrow(value)) {}
    D500_EVERYWHERE operator float() const { return Widen(pattern); }

    D500_EVERYWHERE static constexpr number16 from_bits(uint16_t bits) { return number16(bits, 0); }

    D500_EVERYWHERE number16 &operator+=(float other) { return *this = number16(float(*this) + other); }
    D500_EVERYWHERE number16 &operator-=(float other) { return *this = number16(float(*this) - other); }
    D500_EVERYWHERE number16 &operator*=(float other) { return *this = number16(float(*this) * other); }
    D500_EVERYWHERE number16 &operator/=(float other) { return *this = number16(float(*this) / other); }

private:
    D500_EVERYWHERE constexpr number16(uint16_t bits, int) : pattern(bits) {}
};

using float16 = number16<bits::half_to_float, bits::float_to_half>;
using half = float16;
using bfloat16 = number16<bits::bfloat_to_float, bits::float_to_bfloat>;

static_assert(sizeof(float16) == 2 && std::is_trivially_copyable<float16>::value, "16 bits, copied as such");

}  // namespace deep500

namespace std {

template <>
class numeric_limits<deep500::float16> : public numeric_limits<float> {
public:
    static constexpr int digits = 11, digits10 = 3, max_digits10 = 5, max_exponent = 16, min_exponent = -13;
    static constexpr deep500::float16 min() noexcept { return deep500::float16::from_bits(0x0400); }
    static constexpr deep500::float16 max() noexcept { return deep500::float16::from_bits(0x7bff); }
    static constexpr deep500::float16 lowest() noexcept { return deep500::float16::from_bits(0xfbff); }
    static constexpr deep500::float16 epsilon() noexcept { return deep500::float16::from_bits(0x1400); }
    static constexpr deep500::float16 infinity() noexcept { return deep500::float16::from_bits(0x7c00); }
    static constexpr deep500::float16 quiet_NaN() noexcept { return deep500::float16::from_bits(0x7e00); }
    static constexpr deep500::float16 denorm_min() noexcept { return deep500::float16::from_bits(0x0001); }
};

template <>
class numeric_limits<deep500::bfloat16> : public numeric_limits<float> {
public:
    static constexpr int digits = 8, digits10 = 2, max_digits10 = 4;
    static constexpr deep500::bfloat16 min() noexcept { return deep500::bfloat16::from_bits(0x0080); }
    static constexpr deep500::bfloat16 max() noexcept { return deep500::bfloat16::from_bits(0x7f7f); }
    static constexpr deep500::bfloat16 lowest() noexcept { return deep500::bfloat16::from_bits(0xff7f); }
    static constexpr deep500::bfloat16 epsilon() noexcept { return deep500::bfloat16::from_bits(0x3c00); }
    static constexpr deep500::bfloat16 infinity() noexcept { return deep500::bfloat16::from_bits(0x7f80); }
    static constexpr deep500::bfloat16 quiet_NaN() noexcept { return deep500::bfloat16::from_bits(0x7fc0); }
    static constexpr deep500::bfloat16 denorm_min() noexcept { return deep500::bfloat16::from_bits(0x0001); }
};

}  // namespace std
