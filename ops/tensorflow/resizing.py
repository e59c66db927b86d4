"""Resize: every axis by the weights of an interpolation, or by TensorFlow's kernels where they do the same"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.kernel_factory import Builder, Built
from d5ray.operators.nodes.node_context import Site
from d5ray.ops.tensorflow.interpolation import COORDINATES, ROUNDINGS, Axis, Numbers, nearest_places, plan
from d5ray.ops.tensorflow.layout import ImageLayout, current_layout
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.tensors import Tensor, from_front, known


def _resize(site: Site) -> Built:
    mode, layout = site.attribute("mode", "nearest"), current_layout()
    way = site.attribute("coordinate_transformation_mode", "half_pixel")
    for name, value, allowed in (
        ("mode", mode, ("nearest", "linear", "cubic")),
        ("coordinate_transformation_mode", way, tuple(COORDINATES)),
        ("nearest_mode", site.attribute("nearest_mode", "round_prefer_floor"), tuple(ROUNDINGS)),
    ):
        if value not in allowed:
            raise ConfigurationError(
                f"the node {site.node} has {name}={value!r}: give one of {', '.join(allowed)}"
            )

    def call(
        x: Tensor, region: Tensor | None = None, scales: Tensor | None = None, wanted: Tensor | None = None
    ) -> Tensor:
        given = [_numbers(site, index, each) for index, each in ((1, region), (2, scales), (3, wanted))]
        shape, known_numbers = _needed_shape(site, x, given[1]), [each for each in given if each is not None]
        if shape is None or len(known_numbers) < len(given):
            return _when_it_runs(site, x, region, scales, wanted)
        axes = [axis for axis in _axes(site, shape, *known_numbers) if axis.changes]
        quick = _by_kernel(site, layout, x, axes)
        if quick is not None:
            return quick
        y = x if mode == "nearest" or x.dtype.is_floating else tf.cast(x, tf.float64)
        for axis in axes:
            y = _resized(
                y,
                axis.number,
                plan(site, axis),
                tf.cast(site.attribute("extrapolation_value", 0.0), y.dtype),
            )
        return _as_given(y, x.dtype)

    return call


def _as_given(y: Tensor, dtype: Any) -> Tensor:
    """The result in the type of the input, integers rounded."""
    return y if y.dtype == dtype else tf.saturate_cast(tf.round(y), dtype)


def _numbers(site: Site, index: int, given: Tensor | None) -> Numbers | None:
    """The numbers of this input: nothing if it is left out, None if only the running graph knows."""
    if given is None or (given.shape.rank == 1 and given.shape[0] == 0):
        return np.zeros(0)
    value = known(site, index, given)
    return None if value is None else np.reshape(value, -1).astype(np.float64)


def _needed_shape(site: Site, x: Tensor, scales: Numbers | None) -> list[int] | None:
    """The shape, in which 1 stands for an open size that is scaled by 1; None where another size is open."""
    shape: list[int | None] = x.shape.as_list()
    cropped = site.attribute("coordinate_transformation_mode") == "tf_crop_and_resize"
    for place, axis in enumerate(_chosen(site, len(shape))):
        if shape[axis] is None:
            if cropped or scales is None or place >= len(scales) or scales[place] != 1.0:
                return None
            shape[axis] = 1
    return [1 if size is None else size for size in shape]


def _chosen(site: Site, count: int) -> list[int]:
    return from_front(tuple(site.attribute("axes") or range(count)), count)


def _axes(site: Site, shape: Sequence[int], region: Numbers, scales: Numbers, wanted: Numbers) -> list[Axis]:
    """The axes that the node names, with all that is needed to resize them."""
    chosen = _chosen(site, len(shape))
    if (len(scales) == 0) == (len(wanted) == 0):
        raise ConfigurationError(f"the node {site.node} needs either scales or sizes")
    if max(len(scales), len(wanted)) != len(chosen):
        raise ConfigurationError(
            f"the node {site.node} has {max(len(scales), len(wanted))} scales or sizes for {len(chosen)} axes"
        )
    before = [int(shape[axis]) for axis in chosen]
    if len(wanted):
        ratios, after = _kept_aspect(site, before, wanted)
    else:
        ratios = [float(ratio) for ratio in scales]
        after = [int(np.floor(size * ratio)) for size, ratio in zip(before, ratios, strict=True)]
    cropped = site.attribute("coordinate_transformation_mode") == "tf_crop_and_resize" and len(region)
    return [
        Axis(
            axis,
            before[place],
            after[place],
            ratios[place],
            (float(region[place]), float(region[place + len(chosen)])) if cropped else (0.0, 1.0),
        )
        for place, axis in enumerate(chosen)
    ]


def _kept_aspect(site: Site, before: Sequence[int], wanted: Numbers) -> tuple[list[float], list[int]]:
    """The ratios and the sizes, all by one ratio where the aspect is to be kept."""
    ratios = [float(length) / size for length, size in zip(wanted, before, strict=True)]
    policy = site.attribute("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return ratios, [int(length) for length in wanted]
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return [ratio] * len(before), [int(ratio * size + 0.5) for size in before]


def _when_it_runs(
    site: Site, x: Tensor, region: Tensor | None, scales: Tensor | None, wanted: Tensor | None
) -> Tensor:
    """Resizing by sizes or scales out of the graph: NumPy makes the matrices when it runs."""
    nothing = tf.zeros([0], tf.float64)
    given = [nothing if each is None else tf.cast(each, tf.float64) for each in (region, scales, wanted)]
    nearest = site.attribute("mode", "nearest") == "nearest"
    y = x if nearest or x.dtype.is_floating else tf.cast(x, tf.float64)
    value = tf.cast(site.attribute("extrapolation_value", 0.0), y.dtype)
    for place, number in enumerate(_chosen(site, x.shape.rank)):

        def planned(shape: Numbers, *numbers: Numbers, place: int = place) -> tuple[Any, Numbers, bool]:
            axis = _axes(site, [int(size) for size in shape], *numbers)[place]
            return *plan(site, axis), axis.changes

        kinds = (tf.int32 if nearest else tf.float64, tf.bool, tf.bool)
        taken, outside, changes = tf.numpy_function(planned, [tf.shape(x), *given], kinds, stateful=False)
        taken.set_shape([None] if nearest else [None, x.shape[number]])
        outside.set_shape([None])
        y = tf.cond(changes, partial(_resized, y, number, (taken, outside), value), partial(tf.identity, y))
    return _as_given(y, x.dtype)


def _resized(y: Tensor, number: int, plan: tuple[Any, Any], value: Tensor) -> Tensor:
    """One axis of y, with `value` where a cropped region reaches beyond the original."""
    taken, outside = plan
    y = tf.gather(y, taken, axis=number) if len(taken.shape) == 1 else _multiplied(y, number, taken)
    if isinstance(outside, np.ndarray) and not outside.any():
        return y
    shape = [-1 if each == number else 1 for each in range(y.shape.rank)]
    return tf.where(tf.reshape(outside, shape), value, y)


def _multiplied(x: Tensor, axis: int, weights: Any) -> Tensor:
    """The matrix times x along an axis."""
    matrix, last = tf.cast(weights, x.dtype), x.shape.rank - 1
    if axis == last - 1:
        return tf.matmul(matrix, x)
    order = [each for each in range(last + 1) if each != axis] + [axis]
    moved = x if axis == last else tf.transpose(x, order)
    y = tf.tensordot(moved, matrix, [[last], [1]])
    return y if axis == last else tf.transpose(y, [*range(axis), last, *range(axis, last)])


def _by_kernel(site: Site, layout: ImageLayout, x: Tensor, axes: list[Axis]) -> Tensor | None:
    """The result by TensorFlow's own kernel for images, None where it has none that does the same."""
    if x.shape.rank != 4 or layout.first or [axis.number for axis in axes] != [2, 3]:
        return None
    if any(axis.after != axis.scale * axis.before for axis in axes):
        return None
    way, mode = (
        site.attribute("coordinate_transformation_mode", "half_pixel"),
        site.attribute("mode", "nearest"),
    )
    size = [axis.after for axis in axes]
    if mode == "linear" and x.dtype == tf.float32 and not site.attribute("antialias", 0):
        if way not in ("half_pixel", "align_corners", "asymmetric") or site.attribute("exclude_outside", 0):
            return None
        images = tf.raw_ops.ResizeBilinear(
            images=layout.enter(x),
            size=size,
            align_corners=way == "align_corners",
            half_pixel_centers=way == "half_pixel",
        )
        return layout.leave(images)
    if mode == "nearest" and x.dtype in (tf.float16, tf.float32, tf.float64):
        for half in (True, False):
            if way != "tf_crop_and_resize" and all(_same_nearest(site, axis, half) for axis in axes):
                images = tf.raw_ops.ResizeNearestNeighbor(
                    images=layout.enter(x), size=size, half_pixel_centers=half
                )
                return layout.leave(images)
    return None


def _same_nearest(site: Site, axis: Axis, half: bool) -> bool:
    """True if TensorFlow's kernel takes the elements that ONNX asks for, with half pixels or without."""
    ratio = np.float32(axis.before) / np.float32(axis.after)  # as the kernel computes it
    own = np.floor((np.arange(axis.after, dtype=np.float32) + np.float32(0.5 if half else 0.0)) * ratio)
    return bool(np.array_equal(np.clip(own, 0, axis.before - 1), nearest_places(site, axis)))


BUILDERS: Mapping[str, Builder] = {"Resize": _resize}
