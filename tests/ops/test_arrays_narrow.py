"""The array operators of layers in 16 bits, with empty batches, and with inputs that they cannot take"""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from d5ray.errors import ConfigurationError
from d5ray.ops.arrays import OPERATORS
from tests.ops.gradients import Array, backward, context, forward, normal, on_host
from tests.ops.test_arrays_layers import TYPES

LABELS = np.array([[0, 2], [1, 1]])
SIZES = np.array([1, 1, 7, 3])
SCALED = normal((2, 3), (3,), (3,), (3,))
ROWS: dict[str, tuple[list[Array | None], dict[str, Any]]] = {
    "MatMul": ([*normal((3, 4), (4, 5))], {}),
    "Gemm": ([*normal((3, 4), (4, 5), (5,))], {"alpha": 0.5}),
    "Det": ([*normal((2, 3, 3))], {}),
    "Einsum": ([*normal((3, 4), (4, 5))], {"equation": "ij,jk->ki"}),
    "Conv": ([*normal((1, 2, 5, 5), (3, 2, 3, 3), (3,))], {"pads": (1, 1, 1, 1)}),
    "ConvTranspose": ([*normal((1, 2, 3, 3), (2, 3, 3, 3), (3,))], {"strides": (2, 2)}),
    "AveragePool": ([*normal((1, 2, 5, 5))], {"kernel_shape": (3, 3)}),
    "LpPool": ([*normal((1, 2, 5, 5))], {"kernel_shape": (3, 3)}),
    "MaxPool": ([*normal((1, 2, 5, 5))], {"kernel_shape": (3, 3)}),
    "GlobalAveragePool": ([*normal((1, 2, 5, 5))], {}),
    "GlobalMaxPool": ([*normal((1, 2, 5, 5))], {}),
    "BatchNormalization": ([*SCALED, SCALED[3] ** 2 + 1], {"training_mode": 1}),
    "GroupNormalization": ([*normal((2, 4, 5), (4,), (4,))], {"num_groups": 2}),
    "InstanceNormalization": ([*normal((2, 4, 5), (4,), (4,))], {}),
    "LayerNormalization": ([*normal((2, 4, 5), (5,), (5,))], {}),
    "RMSNormalization": ([*normal((2, 4, 5), (5,))], {}),
    "LpNormalization": ([*normal((2, 4, 5))], {}),
    "LRN": ([*normal((2, 4, 5))], {"size": 3, "alpha": 0.5}),
    "MeanVarianceNormalization": ([*normal((2, 4, 5, 3))], {}),
    "Dropout": ([*normal((6, 5)), np.array(0.5), np.array(True)], {}),
    "RNN": ([*normal((3, 2, 4), (1, 3, 4), (1, 3, 3))], {}),
    "GRU": ([*normal((3, 2, 4), (1, 9, 4), (1, 9, 3))], {}),
    "LSTM": ([*normal((3, 2, 4), (1, 12, 4), (1, 12, 3))], {}),
    "Attention": ([*normal((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4))], {}),
    "RotaryEmbedding": ([*normal((1, 2, 3, 4), (1, 3, 2), (1, 3, 2))], {}),
    "Resize": ([*normal((1, 1, 4, 6)), None, None, SIZES], {"mode": "linear"}),
    "MeanSquaredError": ([*normal((4, 5), (4, 5))], {}),
    "NegativeLogLikelihoodLoss": ([*normal((2, 3, 2)), LABELS], {}),
    "SoftmaxCrossEntropyLoss": ([*normal((2, 3, 2)), LABELS], {}),
}
EPSILON = {np.float16: 2.0**-10, ml_dtypes.bfloat16: 2.0**-7}


@pytest.mark.parametrize("width", EPSILON, ids=lambda width: width.__name__)
@pytest.mark.parametrize("kind", ROWS)
def test_16_bits_are_computed_wide_and_rounded_once(kind: str, width: Any, xp: Any) -> None:
    """Outputs and gradients are of the inputs' type, one rounding away from float64's of the same inputs."""
    if xp is not np and width is ml_dtypes.bfloat16:
        pytest.skip("CuPy does not compute with bfloat16")
    given, attributes = ROWS[kind]
    inputs = [each.astype(width) if each is not None and each.dtype == np.float64 else each for each in given]
    exact = [each.astype(np.float64) if each is not None and each.dtype == width else each for each in inputs]
    (y,), (wanted,) = _first(xp, kind, attributes, inputs), _first(np, kind, attributes, exact)
    assert y.dtype == width and y.shape == wanted.shape
    allowed = EPSILON[width]
    np.testing.assert_allclose(y.astype(np.float64), wanted, rtol=allowed, atol=1e-5)
    cotangent = np.asarray(np.random.default_rng(1).standard_normal(wanted.shape), dtype=width)
    found = backward(xp, _site(xp, kind, attributes, inputs), inputs, [cotangent])
    expected = backward(np, _site(np, kind, attributes, exact), exact, [cotangent.astype(np.float64)])
    for gradient, right in zip(found, expected, strict=True):
        assert (gradient is None) == (right is None)
        if gradient is not None and right is not None:
            assert gradient.dtype == width
            near = 4 * allowed * max(abs(right).max(), 1e-3)
            np.testing.assert_allclose(gradient.astype(np.float64), right, rtol=4 * allowed, atol=near)


def _site(xp: Any, kind: str, attributes: dict[str, Any], inputs: list[Array | None]) -> Any:
    return context(kind, inputs, attributes, random=_Drawn(xp))


class _Drawn:
    """The same numbers for every array module."""

    def __init__(self, xp: Any) -> None:
        self._xp, self._generator = xp, np.random.default_rng(0)

    def random(self, shape: tuple[int, ...]) -> Any:
        return self._xp.asarray(self._generator.random(shape))


def _first(xp: Any, kind: str, attributes: dict[str, Any], inputs: list[Array | None]) -> list[Array]:
    return [on_host(each) for each in forward(xp, _site(xp, kind, attributes, inputs), inputs)[:1]]


def test_every_type_is_looked_at() -> None:
    """The table has all of them."""
    assert set(ROWS) == set(TYPES)


@pytest.mark.parametrize("kind", ROWS)
def test_without_a_gradient_of_the_outputs_there_is_none(kind: str) -> None:
    """Where nothing depends on the outputs."""
    inputs, attributes = ROWS[kind]
    place = _site(np, kind, attributes, inputs)
    assert backward(np, place, inputs, [None]) == [None] * len(inputs)


@pytest.mark.parametrize("kind", sorted(ROWS))
def test_an_input_that_is_missing_is_named(kind: str) -> None:
    """Not by an error of Python's."""
    with pytest.raises(ConfigurationError, match=f"{kind} must have its first"):
        OPERATORS[kind].forward(np, context(kind, []), [])


@pytest.mark.parametrize(
    ("kind", "shapes", "message"),
    [
        ("MatMul", ((3, 4), (3, 4)), r"float64 \(3, 4\), float64 \(3, 4\): "),
        ("Gemm", ((3, 4), (4, 5), (3,)), r"float64 \(3,\): "),
        ("Conv", ((1, 2, 5, 5), (3, 2, 3, 3), (4,)), r"float64 \(4,\): "),
        ("LayerNormalization", ((2, 3), (4,)), r"float64 \(4,\): "),
        ("LSTM", ((3, 2, 4), (1, 12, 5), (1, 12, 3)), r"float64 \(1, 12, 5\), "),
    ],
)
def test_shapes_that_do_not_fit_are_named(
    kind: str, shapes: tuple[tuple[int, ...], ...], message: str
) -> None:
    """With the node, all inputs, and what the array module has against them."""
    inputs = normal(*shapes)
    with pytest.raises(ConfigurationError, match=f"{kind} cannot take inputs of .*{message}"):
        forward(np, context(kind, inputs), inputs)


FIRST_AXES = {"RNN": 1, "GRU": 1, "LSTM": 1}  # where the batch is; elsewhere it comes first
WITH_BATCH = {  # the inputs that have a batch, beside the first
    "Attention": (1, 2),
    "MeanSquaredError": (1,),
    "NegativeLogLikelihoodLoss": (1,),
    "RotaryEmbedding": (1, 2),
    "SoftmaxCrossEntropyLoss": (1,),
}


@pytest.mark.filterwarnings("ignore:Mean of empty slice")  # as NumPy says where it is on purpose nothing
@pytest.mark.parametrize("kind", ROWS)
def test_an_empty_batch_gives_empty_outputs(kind: str) -> None:
    """And gradients of the inputs' shapes."""
    given, attributes = ROWS[kind]
    if kind == "Resize":
        given, attributes = [*given[:3], SIZES[2:]], {**attributes, "axes": (2, 3)}
    inputs = [
        np.take(each, [], axis=FIRST_AXES.get(kind, 0))
        if each is not None and (index == 0 or index in WITH_BATCH.get(kind, ()))
        else each
        for index, each in enumerate(given)
    ]
    place = _site(np, kind, attributes, inputs)
    y = forward(np, place, inputs)[0]
    assert y.size == 0 or y.shape == ()
    for gradient, x in zip(backward(np, place, inputs, [np.ones_like(y)]), inputs, strict=True):
        assert gradient is None or (x is not None and gradient.shape == x.shape)
