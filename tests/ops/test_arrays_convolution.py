"""Conv and ConvTranspose backwards, against PyTorch, and their errors"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from d5ray.errors import ConfigurationError
from d5ray.ops.arrays import convolution
from tests.ops.gradients import check, check_against_torch, context, forward, normal

CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 6), (4, 3, 3), {}),
    ((2, 3, 7), (4, 3, 3), {"strides": (2,), "pads": (1, 0), "dilations": (2,)}),
    ((2, 2, 5, 4), (3, 2, 3, 2), {}),
    ((1, 2, 5, 6), (3, 2, 3, 3), {"pads": (1, 1, 1, 1), "strides": (2, 1)}),
    ((1, 2, 6, 6), (2, 2, 2, 2), {"dilations": (2, 3), "pads": (0, 1, 2, 0)}),
    ((1, 4, 5, 5), (6, 2, 3, 3), {"group": 2, "pads": (1, 1, 1, 1)}),
    ((1, 3, 5, 5), (6, 1, 3, 3), {"group": 3, "strides": (2, 2)}),
    ((1, 2, 5, 6), (2, 2, 3, 2), {"auto_pad": "SAME_UPPER", "strides": (2, 2)}),
    ((1, 2, 5, 6), (2, 2, 2, 2), {"auto_pad": "SAME_LOWER"}),
    ((1, 2, 5, 6), (2, 2, 3, 2), {"auto_pad": "VALID", "strides": (3, 1)}),
    ((1, 2, 4, 4), (3, 2, 1, 1), {}),
    ((1, 2, 3, 4, 3), (2, 2, 2, 2, 2), {"pads": (1, 0, 0, 0, 1, 0)}),
]
TRANSPOSED: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 4), (3, 2, 3), {"strides": (2,), "pads": (1, 0)}),
    ((1, 2, 3, 3), (2, 3, 3, 2), {}),
    ((1, 2, 3, 3), (2, 3, 3, 3), {"strides": (3, 2), "output_padding": (1, 1), "pads": (1, 1, 1, 1)}),
    ((1, 2, 3, 3), (2, 2, 2, 2), {"dilations": (2, 2)}),
    ((1, 4, 3, 3), (4, 2, 2, 2), {"group": 2, "strides": (2, 2)}),
    ((1, 2, 3, 3), (2, 2, 3, 3), {"strides": (2, 2), "auto_pad": "SAME_UPPER"}),
    ((1, 2, 3, 3), (2, 2, 3, 3), {"strides": (2, 2), "auto_pad": "SAME_LOWER"}),
    ((1, 2, 3, 3), (2, 2, 3, 3), {"strides": (3, 2), "output_shape": (10, 8)}),
    ((1, 2, 3, 3), (2, 2, 3, 3), {"strides": (2, 2), "output_shape": (6, 5)}),
    ((1, 2, 2, 2, 2), (2, 1, 2, 2, 2), {"strides": (2, 2, 2)}),
]
FUNCTIONS: tuple[Any, ...] = (functional.conv1d, functional.conv2d, functional.conv3d)
TRANSPOSING: tuple[Any, ...] = (
    functional.conv_transpose1d,
    functional.conv_transpose2d,
    functional.conv_transpose3d,
)


@pytest.mark.parametrize(("image", "weight", "attributes"), CONVOLUTIONS, ids=str)
def test_conv(image: tuple[int, ...], weight: tuple[int, ...], attributes: dict[str, Any], xp: Any) -> None:
    """Strided, dilated, padded, grouped, in one to three dimensions, with a bias."""
    inputs = normal(image, weight, weight[:1])
    check(xp, context("Conv", inputs, attributes), inputs)


@pytest.mark.parametrize(("image", "weight", "attributes"), TRANSPOSED, ids=str)
def test_conv_transpose(
    image: tuple[int, ...], weight: tuple[int, ...], attributes: dict[str, Any], xp: Any
) -> None:
    """With output padding and output shape too."""
    inputs = normal(image, weight, (weight[1] * attributes.get("group", 1),))
    check(xp, context("ConvTranspose", inputs, attributes), inputs)


@given(
    rank=st.integers(1, 3),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    pad=st.integers(0, 2),
    kernel=st.integers(1, 3),
    groups=st.integers(1, 3),
    batch=st.integers(1, 3),
)
@settings(max_examples=15, deadline=None)
def test_conv_and_its_transpose_are_pytorchs(
    rank: int, stride: int, dilation: int, pad: int, kernel: int, groups: int, batch: int
) -> None:
    """Values and gradients, whatever the geometry."""
    attributes = {
        "strides": (stride,) * rank,
        "dilations": (dilation,) * rank,
        "pads": (pad,) * (2 * rank),
        "group": groups,
    }
    options: dict[str, Any] = {"stride": stride, "padding": pad, "dilation": dilation, "groups": groups}
    sizes = (5, 6, 5)[:rank]
    inputs = normal((batch, 2 * groups, *sizes), (2 * groups, 2, *(kernel,) * rank), (2 * groups,))
    check_against_torch(
        context("Conv", inputs, attributes), inputs, lambda *given: FUNCTIONS[rank - 1](*given, **options)
    )
    more = stride - 1
    check_against_torch(
        context("ConvTranspose", inputs, {**attributes, "output_padding": (more,) * rank}),
        inputs,
        lambda *given: TRANSPOSING[rank - 1](*given, **options, output_padding=more),
    )


def test_blocks_of_the_batch_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the columns would take too much memory, images are taken one after the other."""
    inputs = normal((5, 2, 6, 6), (4, 2, 3, 3), (4,))
    place = context("Conv", inputs)
    whole = forward(np, place, inputs)[0]
    monkeypatch.setattr(convolution, "COLUMN_BYTES", 2 * 2 * 9 * 16 * 8)  # two images
    np.testing.assert_allclose(forward(np, place, inputs)[0], whole, rtol=1e-12)
    check(np, place, inputs)


@pytest.mark.parametrize(
    ("image", "weight", "attributes", "message"),
    [
        ((1, 3, 5, 5), (4, 2, 3, 3), {}, r"x of \(1, 3, 5, 5\) and weights of \(4, 2, 3, 3\)"),
        ((1, 4, 5, 5), (3, 2, 3, 3), {"group": 2}, "with 2 groups"),
        ((1, 3, 5, 5), (4, 3, 3), {}, "the same spatial axes"),
        ((1, 3, 2, 2), (4, 3, 3, 3), {}, "no place for its window"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"strides": (1,)}, "give 2 numbers"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"pads": (1, 1)}, "give 4 numbers"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"kernel_shape": (2, 2)}, "kernel_shape"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"auto_pad": "SAME"}, "SAME_UPPER"),
    ],
)
def test_what_does_not_fit_is_named(
    image: tuple[int, ...], weight: tuple[int, ...], attributes: dict[str, Any], message: str
) -> None:
    """With the node, what was found, and what is needed."""
    inputs = normal(image, weight)
    with pytest.raises(ConfigurationError, match=f"Conv .*{message}"):
        forward(np, context("Conv", inputs, attributes), inputs)
