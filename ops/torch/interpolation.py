"""The arithmetic of a Resize: which places of an axis its outputs are taken from, and with which weights

NumPy only: it is done when an operator is built, or for every new size of an image.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node_context import Site

Floats = np.ndarray[Any, np.dtype[np.float64]]
Places = np.ndarray[Any, np.dtype[np.int64]]


@final
@dataclass(frozen=True)
class Along:
    """One axis that is resized."""

    axis: int
    input: int
    output: int
    scale: float
    region: tuple[float, float] | None = None  # for tf_crop_and_resize: the part that is resized, in 0..1

    @property
    def whole(self) -> bool:
        """True if the output's size is the input's times the scale, without a rest."""
        return math.isclose(self.input * self.scale, self.output, rel_tol=1e-9)


@final
@dataclass(frozen=True)
class Interpolation:
    """The attributes of a Resize."""

    mode: str
    coordinates: str
    rounding: str
    antialias: bool
    exclude_outside: bool
    cubic: float
    extrapolation: float
    policy: str
    axes: tuple[int, ...] | None

    @staticmethod
    def of(site: Site) -> "Interpolation":
        """The attributes of a Resize node, or their defaults. Raises ConfigurationError for a wrong mode."""
        mode = site.attribute("mode", "nearest")
        if mode not in ("nearest", "linear", "cubic"):
            raise ConfigurationError(
                f"the node {site.node} resizes by {mode!r}: it must be nearest, linear or cubic"
            )
        return Interpolation(
            mode,
            site.attribute("coordinate_transformation_mode", "half_pixel"),
            site.attribute("nearest_mode", "round_prefer_floor"),
            bool(site.attribute("antialias", 0)),
            bool(site.attribute("exclude_outside", 0)),
            site.attribute("cubic_coeff_a", -0.75),
            site.attribute("extrapolation_value", 0.0),
            site.attribute("keep_aspect_ratio_policy", "stretch"),
            site.attribute("axes"),
        )

    def along(
        self,
        shape: Sequence[int],
        region: Sequence[float] | None,
        scales: Sequence[float] | None,
        sizes: Sequence[int] | None,
    ) -> tuple[Along, ...]:
        """The axes that change; scales or sizes are given for the axes that the node names, or for all."""
        axes = [axis % len(shape) for axis in (range(len(shape)) if self.axes is None else self.axes)]
        if sizes:
            scales = [size / shape[axis] for axis, size in zip(axes, sizes, strict=True)]
            outputs = list(sizes)
            if self.policy != "stretch":
                one = min(scales) if self.policy == "not_larger" else max(scales)
                scales = [one] * len(axes)
                outputs = [int(one * shape[axis] + 0.5) for axis in axes]
        else:
            scales = scales or []
            outputs = [int(shape[axis] * scale) for axis, scale in zip(axes, scales, strict=True)]
        found = []
        for place, axis in enumerate(axes):
            part = None
            if region and self.coordinates == "tf_crop_and_resize":
                part = (region[place], region[place + len(axes)])
            if (
                outputs[place] != shape[axis]
                or not math.isclose(scales[place], 1)
                or part not in (None, (0, 1))
            ):
                found.append(Along(axis, shape[axis], outputs[place], scales[place], part))
        return tuple(found)

    def positions(self, along: Along) -> Floats:
        """The position of every output on the input's axis, (output,)."""
        outputs = np.arange(along.output, dtype=np.float64)
        size, width = along.input, along.input * along.scale
        match self.coordinates:
            case "half_pixel":
                return (outputs + 0.5) / along.scale - 0.5
            case "half_pixel_symmetric":
                centre = size / 2 * (1 - along.output / width)
                return centre + (outputs + 0.5) / along.scale - 0.5
            case "pytorch_half_pixel":
                return np.zeros_like(outputs) if width == 1 else (outputs + 0.5) / along.scale - 0.5
            case "align_corners":
                return np.zeros_like(outputs) if width == 1 else outputs * (size - 1) / (width - 1)
            case "asymmetric":
                return outputs / along.scale
            case "tf_crop_and_resize":
                first, last = along.region or (0.0, 1.0)
                if width == 1:
                    return np.full_like(outputs, (first + last) * (size - 1) / 2)
                return outputs * (last - first) * (size - 1) / (width - 1) + first * (size - 1)
        raise ConfigurationError(
            f"a Resize has the coordinate_transformation_mode {self.coordinates!r}, which ONNX does not know"
        )

    def outside(self, along: Along) -> "np.ndarray[Any, np.dtype[np.bool_]]":
        """True for outputs outside of the input, which take the extrapolation value: (output,)."""
        positions = self.positions(along)
        if self.coordinates != "tf_crop_and_resize":
            return np.zeros(len(positions), bool)
        return (positions < 0) | (positions > along.input - 1)

    def nearest_places(self, along: Along) -> Places:
        """The element of the input that every output is: (output,)."""
        positions = self.positions(along)
        match self.rounding:
            case "round_prefer_floor":
                places = np.ceil(positions - 0.5)
            case "round_prefer_ceil":
                places = np.floor(positions + 0.5)
            case "floor":
                places = np.floor(positions)
            case "ceil":
                places = np.ceil(positions)
            case _:
                raise ConfigurationError(
                    f"a Resize has the nearest_mode {self.rounding!r}, which ONNX does not know"
                )
        return np.clip(places, 0, along.input - 1).astype(np.int64)

    def matrix(self, along: Along) -> Floats:
        """The weights of the inputs in every output: (output, input).

        Antialiasing widens the kernel where the image shrinks. What lies outside is the element at the edge,
        or left out, as `exclude_outside` says.
        """
        positions = self.positions(along)[:, None]
        narrow = min(along.scale, 1.0) if self.antialias else 1.0
        reach = math.ceil((1 if self.mode == "linear" else 2) / narrow)
        places = np.floor(positions).astype(np.int64) + np.arange(1 - reach, reach + 1)  # (output, taps)
        weights = self._kernel(np.abs(places - positions) * narrow)
        outside = (places < 0) | (places >= along.input)
        if self.exclude_outside:
            weights = np.where(outside, 0.0, weights)
        if self.exclude_outside or self.antialias:
            total = weights.sum(axis=1, keepdims=True)
            weights = weights / np.where(total == 0, 1.0, total)
        matrix = np.zeros((along.output, along.input))
        rows = np.broadcast_to(np.arange(along.output)[:, None], places.shape)
        np.add.at(matrix, (rows, np.clip(places, 0, along.input - 1)), weights)
        return matrix

    def _kernel(self, distance: Floats) -> Floats:
        """The weight of an element at a distance: a tent, or Keys' cubic (IEEE TASSP 29 (6), 1981, eq. 4)."""
        if self.mode == "linear":
            return np.maximum(1 - distance, 0.0)
        a, d = self.cubic, distance
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0.0))
