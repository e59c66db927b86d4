"""Spectra: DFT, STFT and MelWeightMatrix; a complex number is a pair of real ones on the last axis"""

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients, WithoutGradient
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.element_types import onnx_type
from d5ray.ops.arrays.known import checked_axis, numbers, required_number
from d5ray.ops.arrays.wide import WideOperator


def _complex(x: Array) -> Array:
    return x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]


def _pairs(xp: Any, x: Array, dtype: Any) -> Array:
    return xp.stack([x.real, x.imag], axis=-1).astype(dtype)


def _fitted(xp: Any, x: Array, length: int, axis: int) -> Array:
    """Cut off, or with zeros behind."""
    x = x[tuple(slice(length) if place == axis else slice(None) for place in range(x.ndim))]
    short = [(0, length - size if place == axis else 0) for place, size in enumerate(x.shape)]
    return xp.pad(x, short)


@final
class DiscreteFourierTransform(WideOperator):
    """y(k) = Σₙ x(n) e^(−2πikn/N); the inverse with the other sign, over N; onesided the first ⌊N/2⌋ + 1.

    x (*before, n, *after, 1 or 2), 1 for real numbers. The onesided inverse gives real numbers.
    """

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x = inputs[0]
        assert x is not None
        axis, length, inverse, onesided = self._read(context, inputs)
        if inverse and onesided:
            return (xp.fft.irfft(_complex(x), length, axis)[..., None].astype(x.dtype),)
        transform = xp.fft.ifft if inverse else xp.fft.fft
        y = transform(_complex(x), length, axis)
        if onesided:
            y = y[tuple(slice(length // 2 + 1) if place == axis else slice(None) for place in range(y.ndim))]
        return (_pairs(xp, y, x.dtype),)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        """The transform is linear: dx is the conjugate transform of dy, as pairs dy₁ + i dy₂."""
        (dy,), x = gradients, inputs[0]
        assert dy is not None and x is not None
        axis, length, inverse, onesided = self._read(context, inputs)
        rest = [None] * (len(inputs) - 1)
        if inverse and onesided:
            dz = xp.fft.fft(dy[..., 0], length, axis) / length
            kept = min(length // 2 + 1, x.shape[axis])
            dz = _fitted(xp, dz[tuple(slice(kept) if p == axis else slice(None) for p in range(dz.ndim))],
                         x.shape[axis], axis)  # fmt: skip
            twice = xp.full(x.shape[axis], 2.0)  # each stands for its conjugate too
            twice[0] = 1
            if length % 2 == 0 and length // 2 < twice.size:
                twice[length // 2] = 1
            dz = dz * twice.reshape(*(-1 if place == axis else 1 for place in range(dz.ndim)))
        else:
            dy = _fitted(xp, _complex(dy), length, axis)
            dz = xp.fft.fft(dy, length, axis) / length if inverse else xp.fft.ifft(dy, length, axis) * length
            dz = _fitted(xp, dz, x.shape[axis], axis)
        return _pairs(xp, dz, x.dtype)[..., : x.shape[-1]], *rest

    def _read(self, context: NodeContext, inputs: Sequence[Array | None]) -> tuple[int, int, bool, bool]:
        """Axis, length, inverse, onesided."""
        x = inputs[0]
        assert x is not None
        asked, given = numbers(context, inputs, 2), numbers(context, inputs, 1)
        axis = checked_axis(context, -2 if asked is None else int(asked[0]), x.ndim)
        inverse, onesided = bool(context.attribute("inverse", 0)), bool(context.attribute("onesided", 0))
        size = 2 * (x.shape[axis] - 1) if inverse and onesided else x.shape[axis]
        return axis, size if given is None else int(given[0]), inverse, onesided


@final
class ShortTimeFourierTransform(WideOperator):
    """y(frame, k) = Σₙ window(n) x(frame · step + n) e^(−2πikn/N).

    x (batch, n, 1 or 2), y (batch, frames, frequencies, 2).
    """

    needs = 2

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x = inputs[0]
        assert x is not None
        places, window, onesided = self._read(xp, context, inputs)
        frames = _complex(x)[:, places] * window  # (batch, frames, length)
        y = xp.fft.fft(frames, axis=-1)
        return (_pairs(xp, y[..., : places.shape[1] // 2 + 1] if onesided else y, x.dtype),)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dy,), x = gradients, inputs[0]
        assert dy is not None and x is not None
        places, window, _ = self._read(xp, context, inputs)
        length = places.shape[1]
        dframes = xp.fft.ifft(_fitted(xp, _complex(dy), length, 2), axis=-1) * length
        dx = xp.zeros((*x.shape[:2], 2), dtype=x.dtype)  # pairs, since CuPy adds no complex numbers at places
        xp.add.at(dx, (slice(None), places), _pairs(xp, dframes * window, x.dtype))
        found: list[Array | None] = [dx[..., : x.shape[-1]], None]
        if len(inputs) > 2:
            seen = _complex(x)[:, places]
            dwindow = (dframes * seen.conj()).real.sum(axis=(0, 1)).astype(x.dtype)
            found.append(None if inputs[2] is None else dwindow)
        return *found, *[None] * (len(inputs) - len(found))

    def _read(
        self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]
    ) -> tuple[Array, Array, bool]:
        """The places of each frame's elements (frames, length), the window, and the flag onesided."""
        x, window = inputs[0], inputs[2] if len(inputs) > 2 else None
        assert x is not None
        given = numbers(context, inputs, 3)
        length = int(given[0]) if given is not None else x.shape[1] if window is None else window.shape[0]
        step = int(required_number(context, inputs, 1, "step between frames"))
        frames = 1 + (x.shape[1] - length) // step
        places = step * xp.arange(frames)[:, None] + xp.arange(length)
        own = xp.ones(length, dtype=x.dtype) if window is None else window
        if own.shape != (length,):
            raise ConfigurationError(
                f"{context.node} has a window {own.shape} for frames of {length} elements"
            )
        return places, own, bool(context.attribute("onesided", 1))


@final
class MelWeightMatrix(WithoutGradient):
    """Triangles over the DFT's frequencies, evenly spread on the mel scale, m(f) = 2595 log₁₀(1 + f / 700).

    (⌊dft length / 2⌋ + 1, bins)
    """

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        bins, length, rate, lowest, highest = (
            required_number(context, inputs, index, name)
            for index, name in enumerate(
                ("number of bins", "length", "sample rate", "lower edge", "upper edge")
            )
        )
        low, high = (2595 * np.log10(1 + edge / 700) for edge in (lowest, highest))
        mels = low + np.arange(bins + 2) * (high - low) / (bins + 2)
        hertz = 700 * (10 ** (mels / 2595) - 1)
        corners = ((length + 1) * hertz // rate).astype(int)
        y = np.zeros((length // 2 + 1, bins))
        places = np.arange(y.shape[0])
        for bin, (left, middle, right) in enumerate(zip(corners, corners[1:], corners[2:], strict=False)):
            if left == middle:
                y[middle, bin] = 1
            else:
                rising = (places >= left) & (places <= middle)
                y[rising, bin] = (places[rising] - left) / (middle - left)
            falling = (places >= middle) & (places < right)
            y[falling, bin] = (right - places[falling]) / max(right - middle, 1)
        return (xp.asarray(y, dtype=onnx_type(context, context.attribute("output_datatype", 1))),)


OPERATORS: Mapping[str, ArrayOperator] = {
    "DFT": DiscreteFourierTransform(),
    "MelWeightMatrix": MelWeightMatrix(),
    "STFT": ShortTimeFourierTransform(),
}
