"""RNN, GRU and LSTM backwards, against PyTorch, with sequences of their own lengths"""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from d5ray.errors import ConfigurationError
from tests.ops.gradients import Array, backward, check, context, forward, normal, on_host

STEPS, BATCH, FEATURES, HIDDEN = 4, 3, 2, 3
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("RNN", {}),
    ("RNN", {"clip": 0.8}),
    ("RNN", {"activations": ("Affine",), "activation_alpha": (0.5,), "activation_beta": (0.1,)}),
    ("GRU", {}),
    ("GRU", {"linear_before_reset": 1}),
    ("GRU", {"linear_before_reset": 1, "clip": 0.9}),
    ("GRU", {"activations": ("HardSigmoid", "Softsign")}),
    ("LSTM", {}),
    ("LSTM", {"input_forget": 1}),
    ("LSTM", {"clip": 0.7}),
    ("LSTM", {"activations": ("Sigmoid", "ScaledTanh", "Elu"), "activation_alpha": (0.9, 1.1),
              "activation_beta": (0.8,)}),
]  # fmt: skip


def recurrent_inputs(kind: str, directions: int = 1, layout: int = 0, lengths: bool = True) -> list[Any]:
    """All that the operator can take: bias, lengths, first states, peepholes."""
    gates = GATES[kind] * HIDDEN
    state = (BATCH, directions, HIDDEN) if layout else (directions, BATCH, HIDDEN)
    x, w, r, b, hidden, cell, peepholes = normal(
        (BATCH, STEPS, FEATURES) if layout else (STEPS, BATCH, FEATURES),
        (directions, gates, FEATURES),
        (directions, gates, HIDDEN),
        (directions, 2 * gates),
        state,
        state,
        (directions, 3 * HIDDEN),
    )
    inputs = [x, w, r, b, np.array([4, 1, 3]) if lengths else None, hidden]
    return [*inputs, cell, peepholes] if kind == "LSTM" else inputs


def place_of(kind: str, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    return context(kind, inputs, {"hidden_size": HIDDEN, **attributes}, outputs=3 if kind == "LSTM" else 2)


@pytest.mark.parametrize(("kind", "attributes"), VARIANTS, ids=str)
@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_through_time(kind: str, attributes: dict[str, Any], direction: str, xp: Any) -> None:
    """Every input's gradient, with sequences of different lengths, for both outputs and last states."""
    inputs = recurrent_inputs(kind)
    check(xp, place_of(kind, inputs, {"direction": direction, **attributes}), inputs)


@pytest.mark.full
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("kind", GATES)
def test_both_directions_at_once(kind: str, layout: int, xp: Any) -> None:
    """And with the batch first."""
    inputs = recurrent_inputs(kind, directions=2, layout=layout)
    check(xp, place_of(kind, inputs, {"direction": "bidirectional", "layout": layout}), inputs)


@pytest.mark.parametrize("kind", GATES)
def test_only_what_must_be_given(kind: str, xp: Any) -> None:
    """Without bias and states, and with a gradient for one of the outputs alone."""
    inputs = recurrent_inputs(kind)[:3]
    check(xp, context(kind, inputs, {"hidden_size": HIDDEN}), inputs)
    place = place_of(kind, inputs, {})
    y, last = (on_host(each) for each in forward(xp, place, inputs)[:2])
    np.testing.assert_array_equal(y[-1], last)
    by_output = np.zeros_like(y)
    by_output[-1] = 1
    one = backward(xp, place, inputs, [by_output, None, None])
    other = backward(xp, place, inputs, [None, np.ones_like(last), None])
    for left, right in zip(one, other, strict=True):
        assert left is not None and right is not None
        np.testing.assert_allclose(left, right, rtol=1e-12)


def test_a_sequence_ends_at_its_length() -> None:
    """Its outputs are 0 behind it, the last state is that at its end, and what stands behind counts not."""
    inputs = recurrent_inputs("LSTM", directions=2)
    place = place_of("LSTM", inputs, {"direction": "bidirectional"})
    y, hidden = forward(np, place, inputs)[:2]
    other = [inputs[0].copy(), *inputs[1:]]
    other[0][1:, 1] = 99.0  # the second sequence has length 1
    np.testing.assert_array_equal(forward(np, place, other)[0], y)
    assert not y[1:, :, 1].any() and y[0, :, 1].all()
    np.testing.assert_array_equal(hidden[0, 2], y[2, 0, 2])  # forward: at its end
    np.testing.assert_array_equal(hidden[1, 2], y[0, 1, 2])  # backward: at its beginning


# Where PyTorch's gates stand among ONNX's: r z n in z r h, i f g o in i o f c.
PYTORCH_ORDER = {"RNN": [0], "GRU": [1, 0, 2], "LSTM": [0, 2, 3, 1]}


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("kind", GATES)
def test_pytorch_agrees(kind: str, direction: str) -> None:
    """Values and gradients, with packed sequences; its GRU resets after the product."""
    directions = 1 if direction == "forward" else 2
    inputs: list[Array] = recurrent_inputs(kind, directions)[: 7 if kind == "LSTM" else 6]
    place = place_of(kind, inputs, {"direction": direction, "linear_before_reset": 1})
    module = getattr(torch.nn, kind)(FEATURES, HIDDEN, bidirectional=directions == 2).double()
    for side in range(directions):
        w, r, b = (_reordered(kind, inputs[index][side]) for index in (1, 2, 3))
        suffix = "_l0" + "_reverse" * side
        with torch.no_grad():
            getattr(module, f"weight_ih{suffix}").copy_(torch.tensor(w))
            getattr(module, f"weight_hh{suffix}").copy_(torch.tensor(r))
            getattr(module, f"bias_ih{suffix}").copy_(torch.tensor(b[: len(b) // 2]))
            getattr(module, f"bias_hh{suffix}").copy_(torch.tensor(b[len(b) // 2 :]))
    x = torch.tensor(inputs[0], requires_grad=True)
    states = [torch.tensor(each, requires_grad=True) for each in inputs[5:]]
    packed = pack_padded_sequence(x, torch.tensor(inputs[4]), enforce_sorted=False)
    output, last = module(packed, tuple(states) if kind == "LSTM" else states[0])
    padded, _ = pad_packed_sequence(output)
    expected = [padded.reshape(STEPS, BATCH, directions, HIDDEN).swapaxes(1, 2)]
    expected.extend(last if kind == "LSTM" else (last,))
    found = forward(np, place, inputs)
    cotangents = normal(*(tuple(each.shape) for each in expected))
    for value, wanted in zip(found, expected, strict=False):
        np.testing.assert_allclose(value, wanted.detach().numpy(), rtol=1e-9, atol=1e-12)
    torch.autograd.backward(expected, [torch.tensor(each) for each in cotangents])
    gradients = backward(np, place, inputs, cotangents)
    for index, wanted in ((0, x), *zip((5, 6), states, strict=False)):
        gradient = gradients[index]
        assert gradient is not None and wanted.grad is not None
        np.testing.assert_allclose(gradient, wanted.grad.numpy(), rtol=1e-8, atol=1e-10)
    for side in range(directions):
        suffix = "_l0" + "_reverse" * side
        for index, name in ((1, "weight_ih"), (2, "weight_hh")):
            gradient = gradients[index]
            assert gradient is not None
            wanted = getattr(module, name + suffix).grad.numpy()
            np.testing.assert_allclose(_reordered(kind, gradient[side]), wanted, rtol=1e-8, atol=1e-10)


def _reordered(kind: str, parameter: Array) -> Array:
    """The gates of one direction in PyTorch's order; a bias holds them twice."""
    parts = parameter.reshape(-1, GATES[kind], HIDDEN, *parameter.shape[1:])
    return parts[:, PYTORCH_ORDER[kind]].reshape(parameter.shape)


ACTIVATIONS = [
    "Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu",
    "Softsign", "Softplus",
]  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation(name: str, xp: Any) -> None:
    """With ONNX's defaults, whatever case it is written in."""
    inputs = recurrent_inputs("RNN")
    check(xp, place_of("RNN", inputs, {"activations": (name.lower(),)}), inputs)


def test_a_bound_of_0_is_none() -> None:
    """As exporters write it."""
    inputs = recurrent_inputs("LSTM")
    plain, bounded = (forward(np, place_of("LSTM", inputs, each), inputs)[0] for each in ({}, {"clip": 0.0}))
    np.testing.assert_array_equal(plain, bounded)


def test_weights_of_other_directions_are_refused() -> None:
    """With the node, what was found, and what is needed."""
    inputs = recurrent_inputs("RNN")
    with pytest.raises(ConfigurationError, match=r"RNN has weights of .*bidirectional with two"):
        forward(np, place_of("RNN", inputs, {"direction": "bidirectional"}), inputs)
