"""Sampled where other tensors say: GridSample, RoiAlign, DeformConv; windows undone: Col2Im, MaxUnpool"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.grid_sample import GridSample
from d5ray.ops.arrays.known import numbers, on_host, required_numbers
from d5ray.ops.arrays.sampling import Sampling
from d5ray.ops.arrays.sliding import gathered, padded, taps
from d5ray.ops.arrays.wide import WideOperator, optional
from d5ray.ops.geometry.windows import Windows, convolution

LINEAR = Sampling("linear")
AT_EDGES = Sampling("linear", "border")


@final
class RoiAlign(WideOperator):
    """y(r, c, bin) = the mean of x(batch of r, c, ·) at regular points of each bin of the region r.

    x (n, c, height, width), regions (r, 4) from (x₁, y₁) to (x₂, y₂), y (r, c, *bins). Of Mask R-CNN
    (arXiv:1703.06870). Where mode is max, it is the largest term weight · element of a bin, as ONNX has it.
    """

    needs = 3

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x, regions, batches = inputs[:3]
        assert x is not None and regions is not None and batches is not None
        bins = int(context.attribute("output_height", 1)), int(context.attribute("output_width", 1))
        y = xp.zeros((regions.shape[0], x.shape[1], *bins), dtype=x.dtype)
        for region, (image, points, inside) in enumerate(_region_points(xp, context, x, regions, batches)):
            if context.attribute("mode", "avg") == "max":
                y[region] = _greatest_terms(xp, image, points, inside).reshape(*y.shape[1:], -1).max(axis=-1)
                continue
            values = AT_EDGES.forward(xp, image, points) * inside
            y[region] = values.reshape(*y.shape[1:], -1).mean(axis=-1)
        return (y,)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dy,), (x, regions, batches) = gradients, inputs
        assert dy is not None and x is not None and regions is not None and batches is not None
        if context.attribute("mode", "avg") == "max":
            raise ConfigurationError(f"the node {context.node} has no gradient where mode is max: take avg")
        dx, owners = xp.zeros_like(x), on_host(batches).ravel()
        for region, (image, points, inside) in enumerate(_region_points(xp, context, x, regions, batches)):
            each = points.shape[1] // math.prod(dy.shape[2:])  # points in a bin
            own = xp.repeat(dy[region].reshape(1, dy.shape[1], -1), each, axis=2) / each
            dx[int(owners[region])] += AT_EDGES.backward(xp, own * inside, image, points)[0][0]
        return dx, None, None


def _region_points(
    xp: Any, context: NodeContext, x: Array, regions: Array, batches: Array
) -> Iterator[tuple[Array, Array, Array]]:
    """The image (1, c, height, width) of each region, its points (1, points, 2) by bins, which count."""
    scale = float(context.attribute("spatial_scale", 1.0))
    half_pixel = context.attribute("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    bins = int(context.attribute("output_height", 1)), int(context.attribute("output_width", 1))
    ratio = int(context.attribute("sampling_ratio", 0))
    for corners, owner in zip(on_host(regions).astype("float64"), on_host(batches).ravel(), strict=True):
        x0, y0, x1, y1 = (corner * scale - (0.5 if half_pixel else 0) for corner in corners)
        axes = []
        for start, size, count in ((y0, y1 - y0, bins[0]), (x0, x1 - x0, bins[1])):
            extent = size if half_pixel else max(size, 1.0)
            each = ratio if ratio > 0 else max(math.ceil(extent / count), 1)
            places = start + (xp.arange(count * each, dtype="float64") + 0.5) * extent / (count * each)
            axes.append(places.reshape(count, each))
        rows, columns = axes
        shape = (*bins, rows.shape[1], columns.shape[1])
        points = xp.stack(
            [
                xp.broadcast_to(rows[:, None, :, None], shape).reshape(-1),
                xp.broadcast_to(columns[None, :, None, :], shape).reshape(-1),
            ],
            axis=-1,
        )
        sizes = xp.asarray(x.shape[2:])
        inside = ((points >= -1) & (points <= sizes)).all(axis=-1)
        image = x[int(owner)][None]
        yield image, xp.clip(points, 0, sizes - 1)[None].astype(x.dtype), inside


def _greatest_terms(xp: Any, image: Array, points: Array, inside: Array) -> Array:
    flat = image.reshape(*image.shape[:2], -1)
    terms = [
        weight[:, None] * xp.take_along_axis(flat, element[:, None], axis=2) * inside
        for element, weight, _ in AT_EDGES.taps(xp, points, image.shape[2:])
    ]
    return xp.stack(terms).max(axis=0)[0]


@final
class DeformConv(WideOperator):
    """y[n, m, o] = b[m] + Σ_{c, k} w[m, c, k] mask[n, k, o] x[n, c, place + offset[n, k, o]].

    where place = o·stride − pad + k·dilation

    x (batch, channels, *image), w (features, channels / group, *kernel), offset (batch, offset groups ·
    kernel · axes, *counts), mask (batch, offset groups · kernel, *counts). arXiv:1811.11168
    """

    needs = 3

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        w, bias = inputs[1], optional(inputs, 3)
        assert w is not None
        columns = _Columns(xp, context, inputs)
        seen = columns.sampled() * columns.mask
        y = _by_group(
            xp, w.reshape(columns.groups, -1, seen[0].size // seen[0].shape[-1] // columns.groups), seen
        )
        y = y.reshape(y.shape[0], w.shape[0], *columns.windows.counts)
        return (y if bias is None else y + bias.reshape(-1, *[1] * len(columns.windows.counts)),)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        dy, w = gradients[0], inputs[1]
        assert dy is not None and w is not None
        columns = _Columns(xp, context, inputs)
        sampled = columns.sampled()  # (batch, offset groups, channels', kernel, counts)
        batch, groups = dy.shape[0], columns.groups
        matrix = w.reshape(groups, w.shape[0] // groups, -1)
        own = dy.reshape(batch, groups, w.shape[0] // groups, -1)
        seen = (sampled * columns.mask).reshape(batch, groups, matrix.shape[2], -1)
        dw = xp.einsum("ngmo,ngko->gmk", own, seen).reshape(w.shape)
        dseen = xp.einsum("gmk,ngmo->ngko", matrix, own).reshape(sampled.shape)
        dx, doffset = columns.backward(dseen * columns.mask)
        found: list[Array | None] = [dx, dw, doffset]
        if len(inputs) > 3:
            found.append(None if inputs[3] is None else dy.sum(axis=(0, *range(2, dy.ndim))))
        if len(inputs) > 4:
            dmask = (dseen * sampled).sum(axis=2)
            found.append(None if inputs[4] is None else dmask.reshape(inputs[4].shape))
        return tuple(found)


def _by_group(xp: Any, matrix: Array, seen: Array) -> Array:
    """(groups, features', channels'·kernel) times (batch, …, counts): (batch, groups, features', counts)."""
    return xp.matmul(matrix, seen.reshape(seen.shape[0], matrix.shape[0], matrix.shape[2], -1))


class _Columns:
    """The values that the windows of a DeformConv see, (batch, offset groups, channels', kernel, counts)."""

    def __init__(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> None:
        x, w, offset = inputs[:3]
        assert x is not None and w is not None and offset is not None
        self.xp, self.x, self.offset_shape = xp, x, offset.shape
        self.windows = convolution(context, x.shape[2:], w.shape[2:])
        self.groups, self.parts = (
            int(context.attribute("group", 1)),
            int(context.attribute("offset_group", 1)),
        )
        kernel, counts = self.windows.kernel, self.windows.counts
        axes, taps_ = len(kernel), math.prod(kernel)
        if offset.shape[1:] != (self.parts * taps_ * axes, *counts):
            raise ConfigurationError(
                f"{context.node} has offsets {offset.shape}, and needs "
                f"{(x.shape[0], self.parts * taps_ * axes, *counts)}"
            )
        start = [
            (xp.arange(count) * stride - before)[:, None] + xp.arange(size)[None] * dilation
            for count, stride, before, size, dilation in zip(
                counts, self.windows.strides, self.windows.before, kernel, self.windows.dilations, strict=True
            )
        ]
        grids = []
        for axis, places in enumerate(start):  # (count, kernel) to (*kernel, *counts)
            shape = [1] * (2 * axes)
            shape[axis], shape[axes + axis] = kernel[axis], counts[axis]
            grids.append(xp.broadcast_to(places.T.reshape(shape), (*kernel, *counts)).reshape(taps_, -1))
        moved = offset.reshape(x.shape[0] * self.parts, taps_, axes, -1)
        points = xp.stack(grids, axis=1)[None] + moved  # (batch · parts, kernel, axes, counts)
        self.points = xp.moveaxis(points, 2, -1).reshape(moved.shape[0], -1, axes).astype(x.dtype)
        self.images = x.reshape(x.shape[0] * self.parts, x.shape[1] // self.parts, *x.shape[2:])
        mask = optional(inputs, 4)
        shape_ = (x.shape[0], self.parts, 1, taps_, math.prod(counts))
        self.mask = xp.ones((1,) * 5, dtype=x.dtype) if mask is None else mask.reshape(shape_)

    def sampled(self) -> Array:
        found = LINEAR.forward(self.xp, self.images, self.points)
        return found.reshape(
            self.x.shape[0], self.parts, self.images.shape[1], math.prod(self.windows.kernel), -1
        )

    def backward(self, gradient: Array) -> tuple[Array, Array]:
        """The gradients with respect to x and the offsets."""
        whole = gradient.reshape(*self.images.shape[:2], -1)
        dx, dpoints = LINEAR.backward(self.xp, whole, self.images, self.points)
        axes, taps_ = len(self.windows.kernel), math.prod(self.windows.kernel)
        doffset = self.xp.moveaxis(dpoints.reshape(dx.shape[0], taps_, -1, axes), -1, 2)
        return dx.reshape(self.x.shape), doffset.reshape(self.offset_shape)


@final
class ColumnsToImage(WideOperator):
    """The sum of all windows at their places: the gradient of taking them out of an image.

    x (batch, channels · kernel, windows), y (batch, channels, *image).
    """

    needs = 3

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x = inputs[0]
        assert x is not None
        windows = self._windows(context, inputs)
        columns = self._split(x, windows)
        whole, image = gathered(xp, (x.shape[0], columns.shape[1], *windows.image), x.dtype, windows)
        for tap, view in enumerate(taps(whole, windows)):
            view += columns[:, :, tap]
        return (xp.ascontiguousarray(image),)

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
        windows = self._windows(context, inputs)
        views = list(taps(padded(xp, dy, windows), windows))
        return xp.stack(views, axis=2).reshape(x.shape), None, None

    def _windows(self, context: NodeContext, inputs: Sequence[Array | None]) -> Windows:
        image = tuple(map(int, required_numbers(context, inputs, 1, "shape of the image")))
        kernel = tuple(map(int, required_numbers(context, inputs, 2, "shape of the blocks")))
        return convolution(context, image, kernel)

    def _split(self, x: Array, windows: Windows) -> Array:
        """(batch, channels, kernel, *counts)."""
        return x.reshape(x.shape[0], -1, math.prod(windows.kernel), *windows.counts)


@final
class MaxUnpool(WideOperator):
    """y[index] = x: each maximum at the place where a MaxPool found it, zeros elsewhere.

    x, index (batch, channels, *counts), the index into the whole flattened output.
    """

    needs = 2

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x, index = inputs[0], inputs[1]
        assert x is not None and index is not None
        natural = self._natural(context, x.shape)
        y = xp.zeros(math.prod(natural), dtype=x.dtype)
        y[index.ravel()] = x.ravel()
        asked = numbers(context, inputs, 2)
        if asked is None or tuple(asked) == natural:
            return (y.reshape(natural),)
        whole = xp.zeros(tuple(map(int, asked)), dtype=x.dtype)
        whole[tuple(map(slice, natural))] = y.reshape(natural)
        return (whole,)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dy,), x, index = gradients, inputs[0], inputs[1]
        assert dy is not None and x is not None and index is not None
        own = dy[tuple(map(slice, self._natural(context, x.shape)))].ravel()
        return own[index.ravel()].reshape(x.shape), *[None] * (len(inputs) - 1)

    def _natural(self, context: NodeContext, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the input of a MaxPool with these attributes."""
        kernel = context.required("kernel_shape")
        rank = len(kernel)
        strides, pads = context.attribute("strides", (1,) * rank), context.attribute("pads", (0,) * 2 * rank)
        return *shape[:2], *(
            (size - 1) * stride - pads[axis] - pads[rank + axis] + extent
            for axis, (size, stride, extent) in enumerate(zip(shape[2:], strides, kernel, strict=True))
        )


OPERATORS: Mapping[str, ArrayOperator] = {
    "Col2Im": ColumnsToImage(),
    "DeformConv": DeformConv(),
    "GridSample": GridSample(),
    "MaxUnpool": MaxUnpool(),
    "RoiAlign": RoiAlign(),
}
