"""Convolutions and pooling under PyTorch against sums written out, for paddings and windows of all kinds"""

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from d5ray.errors import ConfigurationError
from d5ray.ops.torch import FACTORIES
from tests.ops.torch_case import Array, known, node, one_thread, result  # noqa: F401 - one thread

Place = tuple[int, ...]


@st.composite
def shapes_of_windows(draw: st.DrawFn, rank: int = 2, most: int = 2) -> dict[str, Any]:
    """An image's sizes, and attributes that leave a window or more; `most` padding, or less than a window."""
    sizes = draw(st.tuples(*[st.integers(1, 6)] * rank))
    kernel = draw(st.tuples(*[st.integers(1, 3)] * rank))
    dilations = draw(st.tuples(*[st.integers(1, 2)] * rank))
    pads = draw(st.tuples(*(st.integers(0, max(most, size - 1)) for size in kernel * 2)))
    strides = draw(st.tuples(*[st.integers(1, 3)] * rank))
    for axis in range(rank):
        extent = (kernel[axis] - 1) * dilations[axis] + 1
        assume(sizes[axis] + pads[axis] + pads[rank + axis] >= extent)
    return {
        "sizes": sizes, "kernel_shape": kernel, "dilations": dilations, "pads": pads, "strides": strides,
    }  # fmt: skip


def windows(at: dict[str, Any], ceil: bool = False) -> tuple[Place, Iterator[tuple[Place, list[Place]]]]:
    """How many windows there are, and for each its place and the elements' places, also those in the padding.

    ceil: with one more where elements are left over, unless it starts in the padding at the end.
    """
    rank = len(at["sizes"])
    counts = []
    for axis, size in enumerate(at["sizes"]):
        begin, end, stride = at["pads"][axis], at["pads"][rank + axis], at["strides"][axis]
        extent = (at["kernel_shape"][axis] - 1) * at["dilations"][axis] + 1
        count = (size + begin + end - extent) / stride + 1
        count = math.ceil(count) if ceil else math.floor(count)
        counts.append(count - int(ceil and (count - 1) * stride - begin >= size))

    def each() -> Iterator[tuple[Place, list[Place]]]:
        for window in product(*map(range, counts)):
            offsets = product(*map(range, at["kernel_shape"]))
            yield (
                window,
                [
                    tuple(
                        place * stride - begin + offset * dilation
                        for place, stride, begin, offset, dilation in zip(
                            window, at["strides"], at["pads"][:rank], own, at["dilations"], strict=True
                        )
                    )
                    for own in offsets
                ],
            )

    return tuple(counts), each()


def inside(place: Place, sizes: Place, pads: Place | None = None) -> bool:
    """Whether a place lies in the image, or in the padding around it."""
    rank = len(sizes)
    begins, ends = ((0,) * rank,) * 2 if pads is None else (pads[:rank], pads[rank:])
    return all(-b <= p < s + e for p, s, b, e in zip(place, sizes, begins, ends, strict=True))


def attributes(at: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in at.items() if name != "sizes"}


def random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


@pytest.mark.parametrize("rank", [1, 2, 3])
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_convolution_is_its_sum(rank: int, data: st.DataObject) -> None:
    """Σ w x over a window, with what lies in the padding left out; two groups."""
    at = data.draw(shapes_of_windows(rank))
    x, w, b = random(1, 4, *at["sizes"]), random(2, 2, *at["kernel_shape"]), random(2)
    counts, each = windows(at)
    expected = np.zeros((1, 2, *counts))
    for window, places in each:
        for place, offset in zip(places, product(*map(range, at["kernel_shape"])), strict=True):
            if inside(place, at["sizes"]):
                for out in range(2):
                    own = x[(0, slice(2 * out, 2 * out + 2), *place)]
                    expected[(0, out, *window)] += own @ w[(out, slice(None), *offset)]
    expected += b.reshape(2, *(1,) * rank)
    np.testing.assert_allclose(result("Conv", x, w, b, group=2, **attributes(at)), expected, atol=1e-12)


@pytest.mark.parametrize("rank", [1, 2, 3])
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_transposed_convolution_is_the_adjoint(rank: int, data: st.DataObject) -> None:
    """⟨conv x, y⟩ = ⟨x, conv' y⟩ for any padding; what windows do not reach is left to output_padding."""
    at = data.draw(shapes_of_windows(rank))
    x, w = random(1, 2, *at["sizes"]), random(3, 2, *at["kernel_shape"])
    forward = result("Conv", x, w, **attributes(at))
    y = random(*forward.shape)
    rest = tuple(
        (size + at["pads"][axis] + at["pads"][rank + axis] - (k - 1) * dilation - 1) % stride
        for axis, (size, k, dilation, stride) in enumerate(
            zip(at["sizes"], at["kernel_shape"], at["dilations"], at["strides"], strict=True)
        )
    )
    back = result("ConvTranspose", y, w, output_padding=rest, **attributes(at))
    assert back.shape == x.shape
    assert np.vdot(forward, y) == pytest.approx(np.vdot(x, back), rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("sizes", [(9,), (10,), (12,), (13,)])
@pytest.mark.parametrize("automatic", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
def test_a_transposed_convolution_has_the_shape_that_is_asked_for(sizes: Place, automatic: str) -> None:
    """The full one, cut off at both ends, the odd element where ONNX says; the bias stands everywhere."""
    x, w, b = random(1, 2, 4), random(2, 1, 3), np.array([0.5])
    full = result("ConvTranspose", x, w, b, strides=(3,))  # (1, 1, 12)
    found = result("ConvTranspose", x, w, b, strides=(3,), output_shape=sizes, auto_pad=automatic)
    much = full.shape[-1] - sizes[0]
    begin = much // 2 if automatic == "SAME_UPPER" else much - much // 2
    wide = np.pad(full, ((0, 0), (0, 0), (2, 2)), constant_values=0.5)
    np.testing.assert_allclose(found, wide[..., 2 + begin : 2 + begin + sizes[0]], rtol=1e-12)


@pytest.mark.parametrize("kind", ["AveragePool", "MaxPool", "LpPool"])
@settings(max_examples=40, deadline=None)
@given(at=shapes_of_windows(most=0), ceil=st.booleans(), padded=st.booleans())
def test_pooling_is_what_windows_hold(kind: str, at: dict[str, Any], ceil: bool, padded: bool) -> None:
    """Mean, greatest, norm of each window's elements; a mean counts those in the padding if it is told to."""
    x = random(1, 1, *at["sizes"])
    counts, each = windows(at, ceil)
    expected = np.zeros((1, 1, *counts))
    for window, places in each:
        values = np.array([x[(0, 0, *place)] for place in places if inside(place, at["sizes"])])
        assume(len(values))  # of no element, ONNX says nothing
        number = sum(inside(place, at["sizes"], at["pads"]) for place in places) if padded else len(values)
        expected[(0, 0, *window)] = {
            "AveragePool": values.sum() / number,
            "MaxPool": values.max(),
            "LpPool": (np.abs(values) ** 3).sum() ** (1 / 3),
        }[kind]
    own = {"AveragePool": {"count_include_pad": int(padded)}, "LpPool": {"p": 3}}.get(kind, {})
    found = result(kind, x, ceil_mode=int(ceil), **attributes(at), **own)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(at=shapes_of_windows(most=0), ceil=st.booleans(), columns=st.booleans())
def test_places_of_the_greatest_lead_back_to_them(at: dict[str, Any], ceil: bool, columns: bool) -> None:
    """In the whole tensor of several images, counted along rows or along columns."""
    x = random(2, 3, *at["sizes"])
    _, each = windows(at, ceil)
    assume(all(any(inside(place, at["sizes"]) for place in places) for _, places in each))
    options = {"ceil_mode": int(ceil), "storage_order": int(columns), **attributes(at)}
    values, places = result("MaxPool", x, outputs=2, **options)
    counted = x.swapaxes(2, 3) if columns else x
    np.testing.assert_array_equal(counted.reshape(-1)[places], values)


@pytest.mark.parametrize("automatic", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kind", ["Conv", "MaxPool", "AveragePool"])
def test_automatic_padding_gives_as_many_windows_as_strides(kind: str, stride: int, automatic: str) -> None:
    """⌈size / stride⌉, whatever the window, the odd element of padding at the end if UPPER."""
    for size, width in product((1, 5, 6), (1, 2, 3)):
        weights = (random(1, 1, width),) if kind == "Conv" else ()
        x = random(1, 1, size)
        own: dict[str, Any] = {"strides": (stride,), "kernel_shape": (width,)}
        found = result(kind, x, *weights, auto_pad=automatic, **own)
        assert found.shape[-1] == -(-size // stride)
        total = max((found.shape[-1] - 1) * stride + width - size, 0)
        begin = total // 2 if automatic == "SAME_UPPER" else total - total // 2
        given = result(kind, x, *weights, pads=(begin, total - begin), **own)
        np.testing.assert_array_equal(found, given)


def test_more_than_three_axes_are_refused() -> None:
    """Before anything runs, with what was found."""
    inputs = (np.zeros((1, 1, 2, 2, 2, 2)), np.zeros((1, 1, 1, 1, 1, 1)))
    with pytest.raises(
        ConfigurationError, match="works along 4 spatial axes; PyTorch has functions for 1, 2"
    ):
        FACTORIES["Conv"](known(node("Conv", inputs), inputs))


@pytest.mark.parametrize("name", ["MaxPool", "AveragePool"])
def test_padding_that_is_found_is_not_rounded_up(name: str) -> None:
    """With ceil_mode, too: (size − extent) // stride + 1 windows for VALID, size / stride for SAME."""
    x = np.random.default_rng(0).random((1, 1, 7, 8))
    for auto_pad, sizes in (("VALID", (3, 3)), ("SAME_UPPER", (4, 4))):
        attributes: Any = {"kernel_shape": (2, 3), "strides": (2, 2), "auto_pad": auto_pad, "ceil_mode": 1}
        assert result(name, x, **attributes).shape[2:] == sizes
