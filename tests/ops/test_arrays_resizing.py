"""Resize backwards, against PyTorch, with crops, integers, and what does not fit"""

from typing import Any

import numpy as np
import pytest
from torch.nn import functional

from d5ray.errors import ConfigurationError
from tests.ops.gradients import Array, backward, check, check_against_torch, context, forward, normal, on_host

LAST = {"axes": (2, 3)}
MODES = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]


def resized(
    image: Array,
    scales: list[float] | None = None,
    sizes: list[int] | None = None,
    roi: list[float] | None = None,
) -> list[Array | None]:
    """The inputs of a Resize; what decides stands in float32 and int64, as ONNX has it."""
    return [
        image,
        None if roi is None else np.array(roi, dtype=np.float32),
        None if scales is None else np.array(scales, dtype=np.float32),
        None if sizes is None else np.array(sizes),
    ]


def of_image(place_inputs: list[Array | None]) -> tuple[int, ...]:
    """The inputs that have no gradient: what decides is no number of the network."""
    return tuple(index for index in (1, 2) if place_inputs[index] is not None)


@pytest.mark.parametrize("transformation", MODES)
@pytest.mark.parametrize(
    "mode",
    [{"mode": "nearest"}, {"mode": "linear"}, {"mode": "cubic"}, {"mode": "cubic", "exclude_outside": 1}],
    ids=str,
)
@pytest.mark.parametrize("scales", [[1.6, 2.0], [0.6, 0.5]], ids=str)
def test_resize(scales: list[float], mode: dict[str, Any], transformation: str, xp: Any) -> None:
    """Larger and smaller, in every mode, with every way to find the coordinates."""
    inputs = resized(normal((1, 2, 5, 4))[0], scales=scales)
    attributes = {**LAST, **mode, "coordinate_transformation_mode": transformation}
    check(xp, context("Resize", inputs, attributes), inputs, without=of_image(inputs))


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialias(mode: str, xp: Any) -> None:
    """The filter is as wide as the image shrinks."""
    inputs = resized(normal((1, 1, 7, 8))[0], sizes=[3, 5])
    check(xp, context("Resize", inputs, {**LAST, "mode": mode, "antialias": 1}), inputs)


@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_nearest(nearest: str, xp: Any) -> None:
    """Halves go where the mode says; every output is an element of the input."""
    inputs = resized(normal((6, 4))[0], scales=[0.5, 1.5])
    attributes = {"nearest_mode": nearest, "coordinate_transformation_mode": "asymmetric"}
    place = context("Resize", inputs, attributes)
    check(xp, place, inputs, without=(2,))
    assert inputs[0] is not None
    assert np.isin(on_host(forward(xp, place, inputs)[0]), inputs[0]).all()


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_crops(mode: str, xp: Any) -> None:
    """What lies outside the image is the extrapolation value, and has no gradient."""
    image = normal((1, 1, 4, 4))[0]
    inputs = resized(image, sizes=[1, 1, 3, 5], roi=[0, 0, 0.2, -0.4, 1, 1, 0.9, 1.3])
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": "tf_crop_and_resize",
        "extrapolation_value": 7.0,
    }
    place = context("Resize", inputs, attributes)
    check(xp, place, inputs, without=(1,))
    y = on_host(forward(xp, place, inputs)[0])
    assert (y[..., 0] == 7).all() and (y[..., -1] == 7).all() and (y[..., 1:-1] != 7).all()


def test_pytorch_agrees() -> None:
    """Values and gradients of interpolate, which calls half_pixel align_corners=False."""
    image = normal((2, 3, 5, 6))[0]
    for mode, theirs in (("linear", "bilinear"), ("cubic", "bicubic")):
        for corners, ours in ((True, "align_corners"), (False, "half_pixel")):
            for sizes in ([9, 4], [3, 11]):
                inputs = resized(image, sizes=sizes)
                attributes = {**LAST, "mode": mode, "coordinate_transformation_mode": ours}
                check_against_torch(
                    context("Resize", inputs, attributes),
                    inputs,
                    lambda x, *_, s=sizes, m=theirs, c=corners: functional.interpolate(
                        x, size=s, mode=m, align_corners=c
                    ),
                )
    inputs = resized(image, sizes=[3, 4])
    check_against_torch(
        context("Resize", inputs, {**LAST, "mode": "linear", "antialias": 1, "exclude_outside": 1}),
        inputs,
        lambda x, *_: functional.interpolate(x, size=[3, 4], mode="bilinear", antialias=True),
    )


@pytest.mark.parametrize(("policy", "shape"), [("not_larger", (6, 3)), ("not_smaller", (10, 5))])
def test_the_aspect_ratio_is_kept(policy: str, shape: tuple[int, int]) -> None:
    """As large as it may be, or as small."""
    inputs = resized(normal((4, 2))[0], sizes=[6, 5])
    (y,) = forward(
        np, context("Resize", inputs, {"mode": "linear", "keep_aspect_ratio_policy": policy}), inputs
    )
    assert y.shape == shape


def test_whole_numbers_are_rounded_and_kept_in_range(xp: Any) -> None:
    """Cubic overshoots; uint8 ends at 255."""
    image = np.array([[0, 0, 255, 255, 0, 0]], dtype=np.uint8)
    inputs = resized(image, scales=[1, 3])
    (y,) = forward(xp, context("Resize", inputs, {"mode": "cubic"}), inputs)
    exact = forward(
        np, context("Resize", inputs, {"mode": "cubic"}), resized(image.astype(float), scales=[1, 3])
    )[0]
    assert y.dtype == np.uint8 and exact.max() > 255 and exact.min() < 0
    np.testing.assert_array_equal(on_host(y), np.clip(np.rint(exact), 0, 255))


def test_what_is_not_finite_stays_where_it_is() -> None:
    """An infinite element makes only those elements infinite that it is a part of."""
    image = np.zeros((1, 8))
    image[0, 0] = np.inf
    inputs = resized(image, scales=[1, 2])
    (y,) = forward(np, context("Resize", inputs, {"mode": "linear"}), inputs)
    assert np.isfinite(y[0, 4:]).all() and not np.isfinite(y[0, 0])


def test_an_axis_that_stays_is_not_touched() -> None:
    """Nothing to do gives the input, and its gradient the gradient."""
    inputs = resized(normal((2, 3))[0], scales=[1, 1])
    place = context("Resize", inputs, {"mode": "cubic"})
    assert inputs[0] is not None
    np.testing.assert_array_equal(forward(np, place, inputs)[0], inputs[0])
    np.testing.assert_array_equal(backward(np, place, inputs, [np.ones((2, 3))])[0], np.ones((2, 3)))


@pytest.mark.parametrize(
    ("given", "attributes", "message"),
    [
        ({}, {}, "one of its inputs scales and sizes"),
        ({"scales": [1, 1], "sizes": [1, 1]}, {}, "one of its inputs scales and sizes"),
        ({"scales": [2]}, {}, "1 scales for 2 axes"),
        ({"scales": [2, 2]}, {"mode": "quadratic"}, "nearest, linear or cubic"),
        ({"scales": [2, 2]}, {"nearest_mode": "flor"}, "did you mean 'floor'"),
        ({"scales": [2, 2]}, {"coordinate_transformation_mode": "halfpixel"}, "did you mean 'half_pixel'"),
        ({"sizes": [2, 2]}, {"keep_aspect_ratio_policy": "keep"}, "not_larger"),
        ({"sizes": [2, 2]}, {"coordinate_transformation_mode": "tf_crop_and_resize"}, "must hold 4 numbers"),
    ],
)
def test_what_does_not_fit_is_named(given: dict[str, Any], attributes: dict[str, Any], message: str) -> None:
    """With the node, what was found, and what is needed."""
    inputs = resized(np.zeros((3, 4)), **given)
    with pytest.raises(ConfigurationError, match=f"Resize .*{message}"):
        forward(np, context("Resize", inputs, attributes), inputs)


def test_one_element_is_read_at_the_beginning() -> None:
    """PyTorch's half pixels: an axis of length 1 comes from the first element, not from before it."""
    inputs = resized(np.array([[1.0, 5.0, 9.0]]), sizes=[1, 1])
    attributes = {"mode": "cubic", "coordinate_transformation_mode": "pytorch_half_pixel"}
    np.testing.assert_allclose(forward(np, context("Resize", inputs, attributes), inputs)[0], [[1.0]])
