"""Sums, minima, maxima, weighted sums and means of arrays, by blocks that stay in the cache"""

from collections.abc import Sequence
from typing import Any, final

import numpy as np

Flat = np.ndarray[Any, Any]

BLOCK_BYTES = 2**18
SINGLE = np.dtype(np.float32)
_UFUNCS = {"sum": np.add, "mean": np.add, "min": np.minimum, "max": np.maximum}
_End = tuple[Any, float] | None  # what is done with the result, as a ufunc and a number


@final
class ReduceKernels:
    """Reduces arrays in the order given; keeps the memory that it needs between the calls.

    Types of 16 bits are computed in float32 and rounded once.
    """

    def __init__(self) -> None:
        self._scratch: dict[str, Flat] = {}

    @np.errstate(over="ignore", invalid="ignore")  # infinities are for the caller to judge
    def reduce(
        self,
        sources: Sequence[Flat],
        out: Flat,
        operation: str = "sum",
        *,
        copies: Sequence[Flat] = (),
        weights: Sequence[float] | None = None,
    ) -> None:
        """out and its copies ← ((w₀ s₀ ∘ w₁ s₁) ∘ w₂ s₂) …; all are of shape (n,), out may be a source.

        operation: sum, mean, min or max. Equal weights are multiplied last.
        """
        ufunc = _UFUNCS[operation]
        factors, end = _factored(weights or [1.0] * len(sources))
        if operation == "mean":
            end = np.divide, len(sources)
        compute = self._half_precision if _is_half(out.dtype) else self._plain
        step = BLOCK_BYTES // out.itemsize
        for low in range(0, out.size, step):
            block = slice(low, low + step)
            result = out[block]
            compute(ufunc, [source[block] for source in sources], factors, end, result)
            for copy in copies:
                np.copyto(copy[block], result)

    @np.errstate(over="ignore", invalid="ignore")
    def mix(self, own: Flat, others: Sequence[Flat], weights: Sequence[float]) -> None:
        """own ← own − Σ wⱼ (own − sⱼ), the weighted mean with what the weights leave for own; all (n,).

        Bits that agree in all arrays stay, -0.0 too. Equal weights are multiplied last.
        """
        if not others:
            return
        factors, end = _factored(weights)
        half, step = _is_half(own.dtype), BLOCK_BYTES // own.itemsize
        for low in range(0, own.size, step):
            block = own[low : low + step]
            wide = self._widened("own", block) if half else block
            total = self._block("left", block, wide.dtype)
            for position, (other, factor) in enumerate(zip(others, factors, strict=True)):
                theirs = other[low : low + step]
                apart = self._block("right", block, wide.dtype) if position else total
                np.subtract(wide, self._widened("right", theirs) if half else theirs, out=apart)
                if factor != 1.0:
                    np.multiply(apart, factor, out=apart)
                if position:
                    np.add(total, apart, out=total)
            if end:
                end[0](total, end[1], out=total)
            np.subtract(wide, total, out=wide)
            if half:
                _convert(wide, block)

    def swap(self, one: Flat, other: Flat) -> None:
        """Exchange the contents of two arrays (n,)."""
        step = BLOCK_BYTES // one.itemsize
        for low in range(0, one.size, step):
            block = slice(low, low + step)
            kept = self._block("left", one[block], one.dtype)
            np.copyto(kept, one[block])
            np.copyto(one[block], other[block])
            np.copyto(other[block], kept)

    def _plain(self, ufunc: Any, sources: list[Flat], factors: Sequence[float], end: _End, out: Flat) -> None:
        last = len(sources) - 1
        left = self._scaled("left", sources[0], factors[0])
        if last == 0:
            np.copyto(out, left)
        for position in range(1, last + 1):
            right = self._scaled("right", sources[position], factors[position])
            into = out if position == last else self._block("left", out, out.dtype)
            ufunc(left, right, out=into)
            left = into
        if end:
            end[0](out, end[1], out=out)

    def _scaled(self, name: str, source: Flat, factor: float) -> Flat:
        if factor == 1.0:
            return source
        scaled: Flat = np.multiply(source, factor, out=self._block(name, source, source.dtype))
        return scaled

    def _half_precision(
        self, ufunc: Any, sources: list[Flat], factors: Sequence[float], end: _End, out: Flat
    ) -> None:
        left = self._block("left", out, SINGLE)
        for position, (source, factor) in enumerate(zip(sources, factors, strict=True)):
            into = self._widened("right" if position else "left", source)
            if factor != 1.0:
                np.multiply(into, factor, out=into)
            if position:
                ufunc(left, into, out=left)
        if end:
            end[0](left, end[1], out=left)
        _convert(left, out)

    def _widened(self, name: str, half: Flat) -> Flat:
        wide = self._block(name, half, SINGLE)
        _convert(half, wide)
        return wide

    def _block(self, name: str, like: Flat, dtype: Any) -> Flat:
        if name not in self._scratch:
            self._scratch[name] = np.empty(2 * BLOCK_BYTES, np.uint8)
        return self._scratch[name][: like.size * dtype.itemsize].view(dtype)


def take_over(read: Flat) -> None:
    """Make this core the one that wrote these lines last, so that its peer soon writes them at full speed."""
    read.fill(0)


def _factored(weights: Sequence[float]) -> tuple[Sequence[float], _End]:
    """The weights; or, if they are all the same, ones and a product with that weight in the end."""
    if any(weight != weights[0] for weight in weights):
        return weights, None
    return [1.0] * len(weights), None if weights[0] == 1.0 else (np.multiply, weights[0])


def _convert(source: Flat, into: Flat) -> None:
    from d5ray.frameworks.torch.half_precision import convert  # noqa: PLC0415 - imports torch

    convert(source, into)


def _is_half(dtype: Any) -> bool:
    """True if the type is float16 or the bfloat16 of ml_dtypes."""
    return bool(dtype.char == "e" or (dtype.kind == "V" and dtype.itemsize == 2))
