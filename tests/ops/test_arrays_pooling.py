"""Pooling backwards, against PyTorch, and with integers"""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from d5ray.errors import ConfigurationError
from tests.ops.gradients import Array, check, check_against_torch, context, forward, on_host

VARIANTS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 2, 7), {"kernel_shape": (3,), "strides": (2,)}),
    ((1, 2, 6, 5), {"kernel_shape": (2, 3)}),
    ((1, 2, 6, 6), {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ((1, 2, 6, 6), {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1}),
    ((1, 1, 7, 7), {"kernel_shape": (2, 2), "strides": (3, 3), "ceil_mode": 1, "pads": (0, 0, 1, 1)}),
    ((1, 1, 7, 7), {"kernel_shape": (2, 3), "dilations": (2, 2)}),
    ((1, 1, 6, 5), {"kernel_shape": (3, 2), "strides": (2, 2), "auto_pad": "SAME_UPPER"}),
    ((1, 1, 6, 5), {"kernel_shape": (3, 2), "strides": (2, 2), "auto_pad": "SAME_LOWER"}),
    ((1, 1, 4, 4, 4), {"kernel_shape": (2, 2, 2), "strides": (2, 2, 2)}),
]


def spread(*shape: int) -> Array:
    """Numbers that lie far apart, so that a small step changes no maximum, and none near 0."""
    size = int(np.prod(shape))
    order = np.random.default_rng(0).permutation(size)
    return ((order + 0.5 - size / 2) / size * 4).reshape(shape)


@pytest.mark.parametrize(("shape", "attributes"), VARIANTS, ids=str)
@pytest.mark.parametrize(
    ("kind", "more"),
    [("MaxPool", {}), ("AveragePool", {}), ("AveragePool", {"count_include_pad": 1}),
     ("LpPool", {}), ("LpPool", {"p": 1}), ("LpPool", {"p": 3})],
    ids=str,
)  # fmt: skip
def test_pool(
    kind: str, more: dict[str, Any], shape: tuple[int, ...], attributes: dict[str, Any], xp: Any
) -> None:
    """Padded, strided, dilated, with the last window over the end."""
    inputs = [spread(*shape)]
    check(xp, context(kind, inputs, {**attributes, **more}), inputs)


@pytest.mark.parametrize("kind", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 2, 3, 4), (1, 2, 2, 2, 3)], ids=str)
def test_global_pool(kind: str, shape: tuple[int, ...], xp: Any) -> None:
    """Over all spatial axes."""
    inputs = [spread(*shape)]
    check(xp, context(kind, inputs), inputs)


@given(
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    pad=st.integers(0, 1),
    dilation=st.integers(1, 2),
    ceil=st.booleans(),
    counted=st.booleans(),
)
@settings(max_examples=20, deadline=None)
def test_windows_are_pytorchs(
    kernel: tuple[int, int], stride: tuple[int, int], pad: int, dilation: int, ceil: bool, counted: bool
) -> None:
    """Values and gradients of MaxPool and AveragePool; MaxPool's indices lie in the whole array."""
    pad = min(pad, min(kernel) // 2)
    attributes = {"kernel_shape": kernel, "strides": stride, "pads": (pad,) * 4, "ceil_mode": int(ceil)}
    inputs = [spread(2, 2, 8, 7)]
    options: dict[str, Any] = {"kernel_size": kernel, "stride": stride, "padding": pad, "ceil_mode": ceil}
    place = context("MaxPool", inputs, {**attributes, "dilations": (dilation,) * 2}, outputs=2)

    def greatest(x: torch.Tensor) -> Any:
        y, indices = functional.max_pool2d(x, **options, dilation=dilation, return_indices=True)
        planes = torch.arange(4).reshape(2, 2, 1, 1)  # PyTorch counts in each plane, ONNX in all of them
        return y, indices + planes * 56

    check_against_torch(place, inputs, greatest)
    check_against_torch(
        context("AveragePool", inputs, {**attributes, "count_include_pad": int(counted)}),
        inputs,
        lambda x: functional.avg_pool2d(x, **options, count_include_pad=counted),
    )


@pytest.mark.parametrize("order", [0, 1], ids=["by rows", "by columns"])
def test_indices_find_the_greatest(order: int, xp: Any) -> None:
    """Row by row, or column by column within each plane."""
    x = spread(2, 3, 5, 4)
    attributes = {"kernel_shape": (2, 2), "pads": (1, 0, 1, 0), "storage_order": order}
    y, indices = (on_host(each) for each in forward(xp, context("MaxPool", [x], attributes, outputs=2), [x]))
    flat = (x.swapaxes(2, 3) if order else x).ravel()
    np.testing.assert_array_equal(flat[indices], y)


def test_whole_numbers_have_a_greatest(xp: Any) -> None:
    """Padding is smaller than any of them."""
    x = np.full((1, 1, 3, 3), -128, dtype=np.int8)
    attributes = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}
    (y,) = forward(xp, context("MaxPool", [x], attributes), [x])
    np.testing.assert_array_equal(on_host(y), x)
    assert y.dtype == np.int8


def test_of_equal_elements_the_first_has_the_gradient() -> None:
    """As in PyTorch, so that gradients are the same everywhere."""
    x = np.zeros((1, 1, 4, 4))
    inputs = [x]
    check_against_torch(
        context("MaxPool", inputs, {"kernel_shape": (2, 2)}),
        inputs,
        lambda x: functional.max_pool2d(x, 2, stride=1),
    )
    check_against_torch(
        context("GlobalMaxPool", inputs), inputs, lambda x: functional.adaptive_max_pool2d(x, 1)
    )


def test_a_kernel_is_needed() -> None:
    """A node without one is named."""
    with pytest.raises(ConfigurationError, match="MaxPool lacks the attribute 'kernel_shape'"):
        forward(np, context("MaxPool", [np.zeros((1, 1, 2, 2))]), [np.zeros((1, 1, 2, 2))])
