"""Recurrent operators under PyTorch: its kernels against steps written out, and what only steps can do"""

from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from d5ray.ops.recurrence.by_steps import by_steps
from d5ray.ops.torch import FACTORIES
from d5ray.ops.torch.recurrent_steps import STEPS
from d5ray.ops.torch.types import tensor_of
from tests.ops.torch_case import Array, known, node, one_thread, result  # noqa: F401 - one thread

KINDS = {"RNN": (1, 1), "GRU": (1, 3), "LSTM": (2, 4)}  # states and gates
TIME, BATCH, FEATURES, HIDDEN = 4, 3, 2, 5


def inputs_of(kind: str, directions: int, layout: int = 0, lengths: Array | None = None) -> list[Any]:
    """x, w, r, b, lengths, and the first states: arrays, None for lengths that are left out."""
    states, gates = KINDS[kind]
    random = np.random.default_rng(gates).standard_normal
    state = (BATCH, directions, HIDDEN) if layout else (directions, BATCH, HIDDEN)
    return [
        random((BATCH, TIME, FEATURES) if layout else (TIME, BATCH, FEATURES)),
        random((directions, gates * HIDDEN, FEATURES)),
        random((directions, gates * HIDDEN, HIDDEN)),
        random((directions, 2 * gates * HIDDEN)),
        lengths,
        *(random(state) for _ in range(states)),
    ]


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_kernel_computes_what_steps_do(kind: str, direction: str, layout: int) -> None:
    """PyTorch's own, with its gates in another order: all outputs, and all gradients in ONNX's order."""
    states, _ = KINDS[kind]
    arrays = inputs_of(kind, 2 if direction == "bidirectional" else 1, layout)
    own: dict[str, Any] = {"direction": direction, "layout": layout, "hidden_size": HIDDEN}
    if kind == "GRU":
        own["linear_before_reset"] = 1
    context = known(node(kind, arrays, 1 + states, **own), arrays)
    found = []
    for built in (FACTORIES[kind](context), by_steps(context, STEPS)):
        tensors = [None if x is None else tensor_of(x.copy()).requires_grad_() for x in arrays]
        outputs = built(*tensors)
        total = sum((y * torch.arange(y.numel()).reshape(y.shape)).sum() for y in outputs)
        given = [x for x in tensors if x is not None]
        found.append((outputs, torch.autograd.grad(total, given)))
    kernel, steps = found
    both = arrays[1].shape[0]
    assert kernel[0][0].shape == ((BATCH, TIME, both, HIDDEN) if layout else (TIME, both, BATCH, HIDDEN))
    for a, b in zip((*kernel[0], *kernel[1]), (*steps[0], *steps[1]), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


class Calls(TorchFunctionMode):
    """The names of PyTorch's functions that are called meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(function.__name__)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(("clip", "times"), [(None, 1), (3.0, 0)])
@pytest.mark.parametrize(("kind", "name"), [("RNN", "rnn_tanh"), ("GRU", "gru"), ("LSTM", "lstm")])
def test_a_kernel_is_called_where_it_can_be(kind: str, name: str, clip: float | None, times: int) -> None:
    """Once for all steps, and not at all where activations are clipped."""
    arrays = inputs_of(kind, 1)
    before_reset = 1 if kind == "GRU" else None
    built = FACTORIES[kind](known(node(kind, arrays, 2, clip=clip, linear_before_reset=before_reset), arrays))
    with Calls() as calls:
        built(*(None if x is None else tensor_of(x) for x in arrays))
    assert calls.names.count(name) == times


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_shorter_sequence_is_as_if_it_were_alone(kind: str, direction: str) -> None:
    """Its outputs are 0 beyond its length, and its last states are those of its own last step."""
    lengths = np.array([TIME, 1, 3], np.int32)
    states, directions = KINDS[kind][0], 2 if direction == "bidirectional" else 1
    arrays = inputs_of(kind, directions, lengths=lengths)
    y, *last = result(kind, *arrays, outputs=1 + states, direction=direction)
    for each, length in enumerate(lengths):
        x = arrays[0][:length, each : each + 1]
        first = [state[:, each : each + 1] for state in arrays[5:]]
        own_y, *own_last = result(
            kind, x, *arrays[1:4], None, *first, outputs=1 + states, direction=direction
        )
        np.testing.assert_allclose(y[:length, :, each : each + 1], own_y, rtol=1e-12)
        assert not y[length:, :, each].any()
        for a, b in zip(last, own_last, strict=True):
            np.testing.assert_allclose(a[:, each : each + 1], b, rtol=1e-12)


def test_lengths_that_leave_nothing_out_change_nothing() -> None:
    """And are known to, so that the kernel stands."""
    arrays = inputs_of("LSTM", 1)
    plain = result("LSTM", *arrays, outputs=3)
    arrays[4] = np.full(BATCH, TIME, np.int32)
    for a, b in zip(plain, result("LSTM", *arrays, outputs=3), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_clipping_bounds_what_activations_see() -> None:
    """An identity as activation shows it: h = clip(x)."""
    x = np.array([[[-3.0], [0.5], [2.0]]])
    one, zero = np.ones((1, 1, 1)), np.zeros((1, 1, 1))
    found = result("RNN", x, one, zero, activations=("Affine",), clip=1.0)
    np.testing.assert_array_equal(found.ravel(), [-1.0, 0.5, 1.0])


def test_coupled_gates_forget_what_they_do_not_take_in() -> None:
    """f = 1 − i, whatever the weights of the forget gate are."""
    arrays = inputs_of("LSTM", 1)
    coupled = result("LSTM", *arrays, outputs=3, input_forget=1)
    other = inputs_of("LSTM", 1)
    other[1][:, 2 * HIDDEN : 3 * HIDDEN] = 7.0
    for a, b in zip(coupled, result("LSTM", *other, outputs=3, input_forget=1), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.allclose(coupled[0], result("LSTM", *arrays, outputs=3)[0])
