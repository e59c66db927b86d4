"""The normalizations backwards, against PyTorch, in training and in use"""

from typing import Any

import numpy as np
import pytest
from torch.nn import functional

from d5ray.errors import ConfigurationError
from tests.ops.gradients import (
    Array,
    backward,
    check,
    check_against_torch,
    context,
    forward,
    normal,
    on_host,
)


def batch_inputs(*shape: int) -> list[Array]:
    """x, scale, shift, mean, and a variance, which is positive."""
    channels = shape[1] if len(shape) > 1 else 1
    x, scale, shift, mean, variance = normal(shape, *[(channels,)] * 4)
    return [x, scale, shift, mean, variance**2 + 0.5]


@pytest.mark.parametrize("shape", [(4, 3), (3, 2, 4), (2, 3, 2, 3), (5,)], ids=str)
@pytest.mark.parametrize("evaluating", [False, True])
@pytest.mark.parametrize("training", [0, 1])
def test_batch_normalization(training: int, evaluating: bool, shape: tuple[int, ...], xp: Any) -> None:
    """By the batch's statistics in training, whose running ones have no gradient; else by the given ones."""
    inputs = batch_inputs(*shape)
    attributes = {"training_mode": training, "epsilon": 1e-2}
    by_batch = bool(training) and not evaluating
    place = context("BatchNormalization", inputs, attributes, evaluating=evaluating)
    check(xp, place, inputs, without=(3, 4) if by_batch else ())


def test_batch_normalization_is_pytorchs() -> None:
    """In training, with running statistics of the population's variance; and in use."""
    inputs = batch_inputs(4, 3, 2, 2)
    place = context("BatchNormalization", inputs, {"training_mode": 1, "momentum": 0.9}, outputs=3)
    y, mean, variance = forward(np, place, inputs)[:3]
    np.testing.assert_allclose(mean, 0.9 * inputs[3] + 0.1 * inputs[0].mean(axis=(0, 2, 3)))
    np.testing.assert_allclose(variance, 0.9 * inputs[4] + 0.1 * inputs[0].var(axis=(0, 2, 3)))
    check_against_torch(
        context("BatchNormalization", inputs, {"training_mode": 1}),
        inputs,
        lambda x, scale, shift, *_: functional.batch_norm(x, None, None, scale, shift, training=True),
        without=(3, 4),
    )
    check_against_torch(
        context("BatchNormalization", inputs),
        inputs,
        lambda x, scale, shift, mean, variance: (
            (x - mean.reshape(-1, 1, 1))
            / (variance.reshape(-1, 1, 1) + 1e-5).sqrt()
            * scale.reshape(-1, 1, 1)
            + shift.reshape(-1, 1, 1)
        ),
    )
    np.testing.assert_allclose(y.mean(axis=(0, 2, 3)), inputs[2], atol=1e-9)


def test_a_used_batch_normalization_keeps_its_statistics() -> None:
    """Where a network that was trained is used, its running statistics are what they were."""
    inputs = batch_inputs(4, 3)
    place = context("BatchNormalization", inputs, {"training_mode": 1}, outputs=3, evaluating=True)
    _, mean, variance = forward(np, place, inputs)
    np.testing.assert_array_equal(mean, inputs[3])
    np.testing.assert_array_equal(variance, inputs[4])


@pytest.mark.parametrize("kind", ["LayerNormalization", "RMSNormalization"])
@pytest.mark.parametrize("axis", [-1, 1, 0, -2])
def test_layer_and_rms_normalization(kind: str, axis: int, xp: Any) -> None:
    """From any axis on, the scale of the normalized shape or broadcast to it."""
    shape = (2, 3, 4)
    for parameters in (shape[axis:], (shape[-1],), (1,)):
        inputs = normal(shape, *[parameters] * (2 if kind == "LayerNormalization" else 1))
        check(xp, context(kind, inputs, {"axis": axis, "epsilon": 1e-2}), inputs)


def test_layer_normalization_with_its_statistics() -> None:
    """The gradients of the mean and of the inverse deviation flow too; a shift may be left out."""
    inputs = normal((2, 3, 4), (3, 4))
    place = context("LayerNormalization", inputs, {"axis": 1, "stash_type": 11}, outputs=3)
    check(np, place, inputs)
    of_mean = [None, np.ones((2, 1, 1)), None]
    of_x, of_scale = backward(np, place, inputs, of_mean)
    assert of_x is not None
    np.testing.assert_allclose(of_x, np.full((2, 3, 4), 1 / 12))
    np.testing.assert_array_equal(of_scale, np.zeros((3, 4)))


def test_layer_rms_group_and_instance_normalization_are_pytorchs() -> None:
    """Values and gradients."""
    inputs = normal((2, 3, 4), (3, 4), (3, 4))
    check_against_torch(
        context("LayerNormalization", inputs, {"axis": 1}),
        inputs,
        lambda x, scale, shift: functional.layer_norm(x, (3, 4), scale, shift),
    )
    check_against_torch(
        context("RMSNormalization", inputs[:2], {"axis": 1}),
        inputs[:2],
        lambda x, scale: functional.rms_norm(x, (3, 4), scale, 1e-5),
    )
    inputs = normal((2, 6, 4, 3), (6,), (6,))
    check_against_torch(
        context("GroupNormalization", inputs, {"num_groups": 3}),
        inputs,
        lambda x, scale, shift: functional.group_norm(x, 3, scale, shift),
    )
    check_against_torch(
        context("InstanceNormalization", inputs),
        inputs,
        lambda x, scale, shift: functional.instance_norm(x, weight=scale, bias=shift),
    )


@pytest.mark.parametrize("shape", [(2, 4, 5), (2, 4, 2, 3)], ids=str)
def test_group_and_instance_normalization(shape: tuple[int, ...], xp: Any) -> None:
    """Groups of two channels, and every channel for itself."""
    inputs = normal(shape, (4,), (4,))
    check(xp, context("GroupNormalization", inputs, {"num_groups": 2, "epsilon": 1e-2}), inputs)
    check(xp, context("InstanceNormalization", inputs, {"epsilon": 1e-2}), inputs)


@pytest.mark.parametrize("axes", [None, (0,), (1, 2), (0, 1, 2, 3)], ids=str)
def test_mean_variance_normalization(axes: tuple[int, ...] | None, xp: Any) -> None:
    """Over any axes; what is constant has no deviation, and no gradient but that of the difference."""
    inputs = normal((3, 2, 2, 3))
    attributes = {} if axes is None else {"axes": axes}
    check(xp, context("MeanVarianceNormalization", inputs, attributes), inputs)
    constant = [np.ones((3, 2, 2, 3))]
    place = context("MeanVarianceNormalization", constant, attributes)
    (found,) = backward(xp, place, constant, [np.ones((3, 2, 2, 3))])
    np.testing.assert_array_equal(found, np.zeros((3, 2, 2, 3)))


def test_a_small_deviation_counts_beside_its_offset() -> None:
    """y(t x) = t d / (t s + 1e-9), so that ⟨dx, x⟩ = ⟨dy, y⟩ · 1e-9 / (s + 1e-9)."""
    (x,) = normal((3, 2, 2, 3))
    x *= 1e-9
    place = context("MeanVarianceNormalization", [x], {"axes": (0, 1, 2, 3)})
    y, deviation = forward(np, place, [x])
    (cotangent,) = normal(y.shape, seed=5)
    (found,) = backward(np, place, [x], [cotangent])
    expected = (cotangent * y).sum() * 1e-9 / (deviation.item() + 1e-9)
    assert found is not None and (found * x).sum() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization(p: int, axis: int, xp: Any) -> None:
    """Along any axis; zeros stay zeros, without a gradient."""
    inputs = normal((3, 4, 2))
    check(xp, context("LpNormalization", inputs, {"p": p, "axis": axis}), inputs)
    zeros = [np.zeros((3, 4, 2))]
    place = context("LpNormalization", zeros, {"p": p, "axis": axis})
    np.testing.assert_array_equal(on_host(forward(xp, place, zeros)[0]), zeros[0])
    np.testing.assert_array_equal(backward(xp, place, zeros, [np.ones((3, 4, 2))])[0], zeros[0])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_lrn(size: int, xp: Any) -> None:
    """Even and odd numbers of neighbours, and more than there are channels."""
    inputs = normal((2, 5, 2, 2))
    attributes = {"size": size, "alpha": 0.3, "beta": 0.6, "bias": 1.5}
    check(xp, context("LRN", inputs, attributes), inputs)


def test_lrn_is_pytorchs() -> None:
    """For an odd number of neighbours, which both centre."""
    inputs = normal((2, 5, 3, 3))
    check_against_torch(
        context("LRN", inputs, {"size": 3, "alpha": 0.3}),
        inputs,
        lambda x: functional.local_response_norm(x, 3, alpha=0.3, beta=0.75, k=1.0),
    )


@pytest.mark.parametrize("width", [np.float16, np.float32])
def test_narrow_types_keep_their_type(width: Any, xp: Any) -> None:
    """Computed wide, rounded once; LayerNormalization's mean is of its stash type, float32."""
    inputs = [each.astype(width) for each in normal((2, 3, 4), (4,), (4,))]
    place = context("LayerNormalization", inputs, outputs=3)
    y, mean, inverse = forward(xp, place, inputs)[:3]
    assert (y.dtype, mean.dtype, inverse.dtype) == (width, np.float32, np.float32)
    exact = forward(np, place, [each.astype(np.float64) for each in inputs])[0]
    np.testing.assert_allclose(on_host(y).astype(np.float64), exact, rtol=1e-3, atol=1e-3)
    found = backward(xp, place, inputs, [np.ones((2, 3, 4), dtype=width), None, None])
    assert [each is not None and each.dtype for each in found] == [width] * 3


@pytest.mark.parametrize(
    ("kind", "attributes", "message"),
    [
        ("GroupNormalization", {"num_groups": 4}, "4 groups for x of .2, 6, 3."),
        ("GroupNormalization", {}, "lacks the attribute 'num_groups'"),
        ("LayerNormalization", {"axis": 3}, "axis 3 for x of .2, 6, 3."),
        ("LpNormalization", {"p": 3}, "p 3: it must be 1 or 2"),
        ("LRN", {}, "lacks the attribute 'size'"),
    ],
)
def test_what_does_not_fit_is_named(kind: str, attributes: dict[str, Any], message: str) -> None:
    """With the node, what was found, and what is needed."""
    inputs = normal((2, 6, 3), (6,), (6,))[: 1 if kind.startswith("L") and kind[1] in "pR" else 3]
    with pytest.raises(ConfigurationError, match=f"{kind} .*{message}"):
        forward(np, context(kind, inputs, attributes), inputs)
