"""Element-wise arithmetic and functions, with broadcasting"""

import math
from collections.abc import Mapping
from typing import Any

from d5ray.operators.array_operator import Array, ArrayOperator
from d5ray.ops.arrays.element_types import is_floating
from d5ray.ops.arrays.formula import BroadcastFormula, Formula
from d5ray.ops.arrays.integers import integer_power, truncated_quotient
from d5ray.ops.arrays.special import erf

FUNCTIONS: Mapping[str, ArrayOperator] = {
    "Abs": Formula(lambda xp, x: xp.abs(x), lambda xp, x, y: xp.sign(x)),
    "Acos": Formula(lambda xp, x: xp.arccos(x), lambda xp, x, y: -1 / xp.sqrt((1 - x) * (1 + x))),
    "Acosh": Formula(lambda xp, x: xp.arccosh(x), lambda xp, x, y: 1 / xp.sqrt((x - 1) * (x + 1))),
    "Asin": Formula(lambda xp, x: xp.arcsin(x), lambda xp, x, y: 1 / xp.sqrt((1 - x) * (1 + x))),
    "Asinh": Formula(lambda xp, x: xp.arcsinh(x), lambda xp, x, y: 1 / xp.sqrt(x * x + 1)),
    "Atan": Formula(lambda xp, x: xp.arctan(x), lambda xp, x, y: 1 / (x * x + 1)),
    "Atanh": Formula(lambda xp, x: xp.arctanh(x), lambda xp, x, y: 1 / ((1 - x) * (1 + x))),
    "Ceil": Formula(lambda xp, x: xp.ceil(x), None),
    "Cos": Formula(lambda xp, x: xp.cos(x), lambda xp, x, y: -xp.sin(x)),
    "Cosh": Formula(lambda xp, x: xp.cosh(x), lambda xp, x, y: xp.sinh(x)),
    "Erf": Formula(lambda xp, x: erf(xp, x), lambda xp, x, y: 2 / math.sqrt(math.pi) * xp.exp(-x * x)),
    "Exp": Formula(lambda xp, x: xp.exp(x), lambda xp, x, y: y),
    "Floor": Formula(lambda xp, x: xp.floor(x), None),
    "Log": Formula(lambda xp, x: xp.log(x), lambda xp, x, y: 1 / x),
    "Neg": Formula(lambda xp, x: -x, lambda xp, x, y: -1),
    "Reciprocal": Formula(lambda xp, x: 1 / x, lambda xp, x, y: -y * y),
    "Round": Formula(lambda xp, x: xp.rint(x), None),  # halves go to the even neighbour
    "Sign": Formula(lambda xp, x: xp.sign(x), None),
    "Sin": Formula(lambda xp, x: xp.sin(x), lambda xp, x, y: xp.cos(x)),
    "Sinh": Formula(lambda xp, x: xp.sinh(x), lambda xp, x, y: xp.cosh(x)),
    "Sqrt": Formula(lambda xp, x: xp.sqrt(x), lambda xp, x, y: 0.5 / y),
    "Tan": Formula(lambda xp, x: xp.tan(x), lambda xp, x, y: 1 + y * y),
}


def quotient(xp: Any, x: Array, y: Array) -> Array:
    """x / y; for integers it is cut off towards zero."""
    return x / y if is_floating(x) else truncated_quotient(x, y)


def power(xp: Any, x: Array, y: Array) -> Array:
    """xʸ; an integer to the power of an integer is computed in integers."""
    if is_floating(x) or is_floating(y):
        return xp.power(x, y)
    return integer_power(xp, x, y)


def power_derivatives(xp: Any, dz: Array, x: Array, y: Array, z: Array) -> tuple[Array, Array]:
    """dx = dz y x^(y−1), which is 0 at y = 0 for all x; dy = dz z ln x, which is 0 where x is."""
    dx = xp.where(y == 0, 0, dz * y * xp.power(x, y - 1))
    dy = xp.where((x == 0) & (y >= 0), 0, dz * z * xp.log(x))
    return dx, dy


def remainder(xp: Any, x: Array, y: Array, fmod: int) -> Array:
    """x − round(x/y) y; rounded down, the sign is that of y, and towards zero (fmod), it is that of x."""
    return xp.fmod(x, y) if fmod else xp.mod(x, y)


def remainder_derivatives(xp: Any, dz: Array, x: Array, y: Array, z: Array, fmod: int) -> tuple[Array, Array]:
    """The gradients of z = x − n y with respect to x and y, with n = (x − z) / y: dz and −n dz."""
    return dz, -dz * xp.rint((x - z) / y)


ARITHMETIC: Mapping[str, ArrayOperator] = {
    "Add": BroadcastFormula(lambda xp, x, y: x + y, lambda xp, dz, x, y, z: (dz, dz)),
    "Div": BroadcastFormula(quotient, lambda xp, dz, x, y, z: (dz / y, -dz * z / y)),
    "Mod": BroadcastFormula(remainder, remainder_derivatives, {"fmod": 0}),
    "Mul": BroadcastFormula(lambda xp, x, y: x * y, lambda xp, dz, x, y, z: (dz * y, dz * x)),
    "Pow": BroadcastFormula(power, power_derivatives),
    "Sub": BroadcastFormula(lambda xp, x, y: x - y, lambda xp, dz, x, y, z: (dz, -dz)),
}

OPERATORS: Mapping[str, ArrayOperator] = {**FUNCTIONS, **ARITHMETIC}
