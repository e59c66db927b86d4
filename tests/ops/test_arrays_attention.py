"""Attention and RotaryEmbedding backwards, and against PyTorch"""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from d5ray.errors import ConfigurationError
from tests.ops.gradients import Array, backward, check, check_against_torch, context, forward, normal, on_host

QUERIES, KEYS = (2, 4, 3, 2), (2, 2, 5, 2)  # (batch, heads, length, features)
VALUES, SCORES = (2, 2, 5, 3), (2, 4, 3, 5)


def arrays(mask: Array | None = None, past: int = 0, lengths: Array | None = None) -> list[Array | None]:
    """Queries of four heads, keys and values of two."""
    q, k, v, past_k, past_v = normal(QUERIES, KEYS, VALUES, (2, 2, past, 2), (2, 2, past, 3))
    if lengths is not None:
        return [q, k, v, mask, None, None, lengths]
    return [q, k, v, mask, past_k, past_v] if past else [q, k, v, *([] if mask is None else [mask])]


FORBIDDEN = np.where(np.random.default_rng(0).random((3, 5)) < 0.4, -np.inf, 0.0)
TRUTHS = np.random.default_rng(0).random((2, 1, 3, 5)) < 0.6
VARIANTS: dict[str, tuple[list[Array | None], dict[str, Any]]] = {
    "plain": (arrays(), {}),
    "scale": (arrays(), {"scale": 0.3}),
    "softcap": (arrays(), {"softcap": 1.5}),
    "causal": (arrays(), {"is_causal": 1}),
    "window": (arrays(), {"left_window_size": 1, "right_window_size": 2}),
    "left window": (arrays(), {"left_window_size": 1, "is_causal": 1}),
    "mask": (arrays(normal((3, 5), seed=4)[0]), {}),
    "mask of heads": (arrays(normal((4, 1, 5), seed=4)[0]), {"softcap": 2.0}),
    "short mask": (arrays(normal((2, 1, 3, 4), seed=4)[0]), {}),
    "forbidding mask": (arrays(FORBIDDEN), {"is_causal": 1}),
    "booleans": (arrays(TRUTHS), {}),
    "past": (arrays(past=2), {"is_causal": 1}),
    "past and mask": (arrays(normal((3, 7), seed=4)[0], past=2), {"is_causal": 1}),
    "lengths": (arrays(lengths=np.array([5, 2])), {"is_causal": 1}),
}
FINITE = ("plain", "scale", "softcap", "mask", "mask of heads")


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("name", VARIANTS)
def test_attention(name: str, mode: int, xp: Any) -> None:
    """With masks, past keys, windows, a softcap, for all four outputs; what is forbidden has no gradient."""
    inputs, attributes = VARIANTS[name]
    place = context("Attention", inputs, {**attributes, "qk_matmul_output_mode": mode}, outputs=4)
    if mode == 2 and name not in FINITE:  # minus infinity has no difference: three outputs count
        place = context("Attention", inputs, attributes, outputs=3)
    check(xp, place, inputs)


@pytest.mark.parametrize("heads", [(4, 2), (4, 4), (4, 1)], ids=str)
def test_heads_side_by_side(heads: tuple[int, int], xp: Any) -> None:
    """Three axes are four with the heads beside one another, with grouped and single keys too."""
    of_queries, of_keys = heads
    q, k, v = normal((2, of_queries, 3, 2), (2, of_keys, 5, 2), (2, of_keys, 5, 3))
    flat = [each.swapaxes(1, 2).reshape(2, each.shape[2], -1) for each in (q, k, v)]
    place = context("Attention", flat, {"q_num_heads": of_queries, "kv_num_heads": of_keys})
    check(xp, place, flat)
    found = on_host(forward(xp, place, flat)[0]).reshape(2, 3, of_queries, 3).swapaxes(1, 2)
    expected = forward(np, context("Attention", [q, k, v]), [q, k, v])[0]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_pytorch_agrees(causal: bool) -> None:
    """Values and gradients of scaled_dot_product_attention, with grouped keys; and with a mask."""
    inputs = normal((2, 4, 5, 3), (2, 2, 5, 3), (2, 2, 5, 3))
    check_against_torch(
        context("Attention", inputs, {"is_causal": int(causal)}),
        inputs,
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True),
    )
    if not causal:
        masked = [*inputs, *normal((2, 4, 5, 5), seed=2)]
        check_against_torch(
            context("Attention", masked),
            masked,
            lambda q, k, v, mask: functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True),
        )


def test_a_query_that_may_look_at_nothing_gives_nothing() -> None:
    """Zeros, neither a mean nor not-a-number; and it has no gradient."""
    mask = np.array([[True, True], [False, False]])
    inputs: list[Array | None] = [*normal((1, 1, 2, 2), (1, 1, 2, 2), (1, 1, 2, 2)), mask]
    place = context("Attention", inputs)
    (y,) = forward(np, place, inputs)[:1]
    assert y[0, 0, 0].all() and not y[0, 0, 1].any()
    of_query = backward(np, place, inputs, [np.ones_like(y)])[0]
    assert of_query is not None and not of_query[0, 0, 1].any()


@pytest.mark.parametrize(
    "mask", [np.ones((3, 4), dtype=bool), np.zeros((2, 1, 3, 4))], ids=["truth", "numbers"]
)
def test_what_a_mask_does_not_reach_is_forbidden(mask: Array) -> None:
    """As if it had been filled up with false, or with minus infinity."""
    inputs = arrays(mask)
    (y,) = forward(np, context("Attention", inputs), inputs)[:1]
    fewer = [inputs[0], *(each[:, :, :4] for each in inputs[1:3] if each is not None)]
    np.testing.assert_allclose(y, forward(np, context("Attention", fewer), fewer)[0], rtol=1e-12)


def test_two_steps_with_a_past_are_one() -> None:
    """Keys and values that were kept stand for those that are given again."""
    q, k, v = normal((1, 2, 4, 3), (1, 2, 4, 3), (1, 2, 4, 3))
    whole = forward(np, context("Attention", [q, k, v], {"is_causal": 1}), [q, k, v])[0]
    first = [each[:, :, :3] for each in (q, k, v)]
    place = context("Attention", first, {"is_causal": 1}, outputs=3)
    start, keys, values = forward(np, place, first)[:3]
    last = [*(each[:, :, 3:] for each in (q, k, v)), None, keys, values]
    end = forward(np, context("Attention", last, {"is_causal": 1}, outputs=3), last)[0]
    np.testing.assert_allclose(np.concatenate((start, end), axis=2), whole, rtol=1e-12)


@pytest.mark.parametrize("precision", [1, 11])
def test_the_softmax_may_have_a_type_of_its_own(precision: int) -> None:
    """The result keeps the inputs' type."""
    inputs = [each.astype(np.float32) for each in normal(QUERIES, KEYS, VALUES)]
    place = context("Attention", inputs, {"softmax_precision": precision})
    (y,) = forward(np, place, inputs)[:1]
    exact = forward(np, context("Attention", inputs), [each.astype(np.float64) for each in inputs])[0]
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, exact, rtol=1e-5, atol=1e-6)


ROTATIONS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 4, 6), {}),
    ((2, 3, 4, 6), {"interleaved": 1}),
    ((2, 3, 4, 6), {"rotary_embedding_dim": 4}),
    ((2, 3, 4, 6), {"rotary_embedding_dim": 4, "interleaved": 1}),
    ((2, 4, 18), {"num_heads": 3}),
]


@pytest.mark.parametrize(("shape", "attributes"), ROTATIONS, ids=str)
@pytest.mark.parametrize("indexed", [False, True])
def test_rotary_embedding(indexed: bool, shape: tuple[int, ...], attributes: dict[str, Any], xp: Any) -> None:
    """Whole or in part, interleaved or in halves, with a table of positions or angles for each."""
    half = attributes.get("rotary_embedding_dim", 6) // 2
    tables = [(7, half)] * 2 if indexed else [(2, 4, half)] * 2
    positions = [np.array([[0, 1, 2, 3], [6, 2, 2, 0]])] if indexed else []
    inputs = [*normal(shape, *tables), *positions]
    check(xp, context("RotaryEmbedding", inputs, attributes), inputs)


def test_a_rotation_keeps_lengths() -> None:
    """Cosines and sines of one angle turn pairs."""
    (x,) = normal((1, 1, 3, 4))
    angles = np.random.default_rng(0).random((1, 3, 2))
    inputs = [x, np.cos(angles), np.sin(angles)]
    (y,) = forward(np, context("RotaryEmbedding", inputs), inputs)
    np.testing.assert_allclose((y**2).sum(), (x**2).sum())
    complex_x = x[..., :2] + 1j * x[..., 2:]
    np.testing.assert_allclose(y[..., :2] + 1j * y[..., 2:], complex_x * np.exp(1j * angles)[:, None])


@pytest.mark.parametrize(
    ("kind", "shapes", "attributes", "message"),
    [
        ("Attention", (QUERIES, (2, 3, 5, 2), (2, 3, 5, 3)), {}, "4 heads of queries for 3 of keys"),
        ("Attention", ((2, 3, 8), (2, 5, 4), (2, 5, 4)), {}, "lacks the attribute 'q_num_heads'"),
        ("Attention", ((2, 3, 8), (2, 5, 4), (2, 5, 4)), {"q_num_heads": 3, "kv_num_heads": 2}, "3 heads"),
        ("RotaryEmbedding", ((2, 4, 18), (2, 4, 3), (2, 4, 3)), {}, "num_heads 0"),
        ("RotaryEmbedding", ((2, 3, 4, 6), (2, 4, 2), (2, 4, 2)), {}, "last axis must be 3"),
    ],
)
def test_what_does_not_fit_is_named(
    kind: str, shapes: tuple[tuple[int, ...], ...], attributes: dict[str, Any], message: str
) -> None:
    """With the node, what was found, and what is needed."""
    inputs = normal(*shapes)
    with pytest.raises(ConfigurationError, match=f"{kind} .*{message}"):
        forward(np, context(kind, inputs, attributes), inputs)


def test_half_of_a_past_is_an_error() -> None:
    """Keys and values come together."""
    inputs: list[Array | None] = [*normal(QUERIES, KEYS, VALUES), None, *normal((2, 2, 1, 2)), None]
    with pytest.raises(ConfigurationError, match="one of past_key and past_value: give both"):
        forward(np, context("Attention", inputs), inputs)


def test_scores_are_given_as_asked() -> None:
    """Raw, with the softcap, with the mask, and the softmax: ONNX's four modes."""
    inputs: list[Array | None] = arrays(normal((3, 5), seed=4)[0])
    found = [
        forward(np, context("Attention", inputs, {"softcap": 1.5, "qk_matmul_output_mode": mode}, 4), inputs)[
            3
        ]
        for mode in range(4)
    ]
    raw = torch.tensor(found[0])
    np.testing.assert_allclose(found[1], 1.5 * np.tanh(found[0] / 1.5))
    np.testing.assert_allclose(found[2], found[1] + inputs[3])
    np.testing.assert_allclose(found[3], functional.softmax(torch.tensor(found[2]), dim=-1).numpy())
    assert raw.shape == SCORES
