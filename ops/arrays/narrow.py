"""Casts to types of 8 bits and fewer: what becomes of numbers that these do not hold"""

from typing import Any

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array
from d5ray.operators.tensors.tensor_descriptor import OF_ML_DTYPES, SUB_BYTE
from d5ray.ops.arrays.element_types import is_floating, wide

E8M0 = "float8_e8m0fnu"
NARROW = OF_ML_DTYPES - {"bfloat16"}
EXPONENTS = range(-127, 128)  # of float8_e8m0fnu, whose numbers are 2ᵉ, e + 127 being their bits
NOT_A_NUMBER = 255  # as bits of it


def cast_to(
    xp: Any, x: Array, dtype: "np.dtype[Any]", saturate: bool = True, round_mode: str = "up"
) -> Array:
    """The numbers in another type, by the rules of ONNX's Cast.

    Floating-point numbers in 8 bits: the nearest one, even ones of two; what rounds to more than the greatest
    becomes that where it saturates, else ∞, or NaN where the type has no ∞.
    """
    if x.dtype.name in NARROW and dtype != x.dtype:
        x = _widened(x)
    if dtype.name not in NARROW:
        return x.astype(dtype, copy=False)
    if xp is not np:
        raise ConfigurationError(f"CuPy has no elements of type {dtype}: choose another type, or NumPy")
    if dtype.name == E8M0:
        return power_of_two(x, dtype, saturate, round_mode)
    if dtype.name in SUB_BYTE:
        return wide(x).astype(dtype)
    x = wide(x) if x.dtype.kind in "fV" else x.astype("float64")
    return (_clipped(x, dtype) if saturate else x).astype(dtype)


def saturated(xp: Any, x: Array, dtype: "np.dtype[Any]") -> Array:
    """The nearest number of the type, the least or greatest one for what lies beyond; halves to even."""
    if dtype.kind in "iu" or "int" in dtype.name:
        if dtype.kind in "iu":
            low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        else:
            bits, signed = int(dtype.name.removeprefix("u").removeprefix("int")), dtype.name[0] == "i"
            low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        return cast_to(xp, xp.clip(xp.rint(x), low, high), dtype)
    return cast_to(xp, x, dtype)


def _widened(x: Array) -> Array:
    """The values in a type of NumPy's own."""
    if x.dtype.name == E8M0:
        return as_float64(x)
    return wide(x) if is_floating(x) else x.astype("int16")


def _clipped(x: Array, dtype: "np.dtype[Any]") -> Array:
    import ml_dtypes  # noqa: PLC0415 - takes a while, and is rarely needed

    greatest = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
    return np.clip(x, -greatest, greatest)


def power_of_two(x: Array, dtype: "np.dtype[Any]", saturate: bool, round_mode: str) -> Array:
    """The power of two above |x|, below it, or the nearer one (the mantissa decides, a half goes up)."""
    least, greatest = EXPONENTS[0], EXPONENTS[-1]
    mantissa, exponent = np.frexp(np.abs(x.astype("float64")))  # |x| = mantissa · 2ᵉ, from 1/2 up to 1
    above = {"up": mantissa > 0.5, "down": np.False_, "nearest": mantissa >= 0.75}
    if round_mode not in above:
        raise ConfigurationError(f"round_mode={round_mode!r} is none of {', '.join(above)}")
    exponent = np.where(mantissa == 0, least - 1, exponent - 1 + above[round_mode])
    if saturate:
        exponent = np.where(np.isinf(x), greatest, np.clip(exponent, least, greatest))
        there = ~np.isnan(x)
    else:
        there = np.isfinite(x) & (exponent >= least) & (exponent <= greatest)
    bits = np.where(there, exponent - least, NOT_A_NUMBER).astype("uint8")
    return bits.view(dtype)


def as_float64(x: Array) -> Array:
    """The powers of two of float8_e8m0fnu, by their bits: some threads drop what is denormal in float32."""
    bits = x.view("uint8").astype("int64")
    return np.where(bits == NOT_A_NUMBER, np.nan, np.ldexp(1.0, bits + EXPONENTS[0]))
