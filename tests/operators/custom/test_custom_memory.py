"""Whose memory an operator's arrays are: what it keeps is copied, what it is given can only be read"""

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.errors import ConfigurationError, OperatorError, ValidationError
from tests.operators.custom.test_custom_frameworks import differentiated

A, B = np.array([1.0, 2.0]), np.array([3.0, 5.0])


class Doubled(d5.CustomPythonOp):
    """2 x, in one buffer for all calls, of which `how` returns something; its gradient likewise."""

    def __init__(self, how: Callable[[Any], Any]) -> None:
        super().__init__()
        self.how, self.out, self.slope = how, np.empty(2), np.empty(2)
        self.parts, self.memory = [self.out], self.out.data

    def forward(self, x: Any) -> Any:
        np.multiply(x, 2, out=self.out)
        return self.how(self)

    def backward(self, grads: Any, fwd_inputs: Any, fwd_outputs: Any) -> Any:
        np.multiply(grads[0], 2, out=self.slope)
        return self.slope[:]


RETURNED: dict[str, Callable[[Any], Any]] = {
    "a buffer": lambda op: op.out,
    "a view": lambda op: op.out[:],
    "a view of a view": lambda op: op.out[:][::1],
    "a list that it keeps": lambda op: op.parts,
    "memory": lambda op: np.asarray(op.memory),
    "one array twice": lambda op: (op.out.copy(),) * 2,
}


def in_numpy(op: d5.CustomOp) -> tuple[Any, Any]:
    operation = import_module("d5ray.frameworks.numpy").custom_op(op)
    first, second = operation.forward([A])[-1], operation.forward([B])[0]
    slopes = [operation.backward([each] * 2, [each], [each])[0] for each in (A, B)]
    return (first, second), slopes


def in_framework(world: str, op: d5.CustomOp) -> tuple[Any, Any]:
    def function(operation: Any, a: Any, b: Any, *weights: Any) -> Any:
        calls = [each if isinstance(each, tuple) else (each,) for each in (operation(a), operation(b))]
        return calls[0][-1], calls[1][0], sum(w * each[0] for w, each in zip(weights, calls, strict=True))

    outputs, gradients = differentiated(world, op, function, A, B, A, B)
    return outputs[:2], gradients[:2]


WORLDS: dict[str, Callable[[d5.CustomOp], tuple[Any, Any]]] = {
    "numpy": in_numpy, "torch": partial(in_framework, "torch"),
    "tensorflow": partial(in_framework, "tensorflow"),
}  # fmt: skip
each_world = pytest.mark.parametrize("world", WORLDS)


@pytest.mark.every_case
@pytest.mark.parametrize("how", RETURNED)
@each_world
def test_a_second_call_leaves_what_the_first_gave(how: str, world: str) -> None:
    """Outputs and gradients that are the operator's own memory are copied."""
    outputs, gradients = WORLDS[world](Doubled(RETURNED[how]))
    np.testing.assert_array_equal(np.asarray(outputs), [2 * A, 2 * B])
    np.testing.assert_array_equal(np.asarray(gradients), [2 * A, 2 * B])


def test_new_memory_is_not_copied() -> None:
    """Nor a view of it."""
    seen = []

    class Seen(d5.CustomPythonOp):
        def forward(self, x: Any) -> Any:
            made = x + 1
            seen.append(made.ctypes.data)
            return made.reshape(1, 2)

    assert in_numpy_of(Seen())(A).ctypes.data == seen.pop()


def in_numpy_of(op: d5.CustomOp) -> Any:
    return import_module("d5ray.frameworks.numpy").custom_op(op)


class Writing(d5.CustomPythonOp):
    """Writes to its input, some way."""

    def __init__(self, write: Callable[[Any], Any]) -> None:
        super().__init__()
        self.write = write

    def forward(self, x: Any) -> Any:
        self.write(x)
        return x + 1


def to_base(x: Any) -> None:
    np.asarray(x.base)[...] = 0


def by_flag(x: Any) -> None:
    x.flags.writeable = True


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
@pytest.mark.parametrize("write", [lambda x: x.fill(0), to_base, by_flag])
def test_an_input_cannot_be_written(write: Any, dtype: str) -> None:
    """Not by its base, nor by its flag; the error names the operator."""
    x = np.ones((2, 3), d5.TensorDescriptor(dtype).dtype)[:, ::2]
    with pytest.raises(OperatorError, match="forward of the operator Writing failed"):
        in_numpy_of(Writing(write))(x)
    np.testing.assert_array_equal(x.astype(float), np.ones((2, 2)))


class Masked(d5.CustomPythonOp):
    """max(x, 0); what the gradient needs stands in `self`, or follows from the inputs."""

    def __init__(self, left: bool) -> None:
        super().__init__()
        self.left = left

    def forward(self, x: Any) -> Any:
        self.mask = x > 0
        return x * self.mask

    def backward(self, grads: Any, fwd_inputs: Any, fwd_outputs: Any) -> Any:
        return grads[0] * (self.mask if self.left else fwd_inputs[0] > 0)


@pytest.mark.parametrize("make", [np.array, torch.tensor], ids=["numpy", "torch"])
def test_what_is_left_for_backward_is_found(make: Any) -> None:
    """By a call with other inputs in between; PyTorch's calls each have their own, as training has them."""
    x = make([1.0, -2.0, 3.0, 4.0])
    assert d5.operators.check_gradient(Masked(left=False), [x]).passed
    if make is torch.tensor:
        assert d5.operators.check_gradient(Masked(left=True), [x]).passed
        return
    with pytest.raises(ValidationError, match=r"Masked gives another gradient .* leave nothing in self"):
        d5.operators.check_gradient(Masked(left=True), [x])


def test_a_function_that_overwrites_what_it_gave_is_found() -> None:
    """One that is no CustomPythonOp, whose outputs nobody copies."""
    kept = np.empty(2)
    with pytest.raises(ValidationError, match="output 0 of doubled changes when it is called again"):
        d5.operators.check_forward(doubled_into(kept), [A], [2 * A])


def doubled_into(kept: Any) -> Callable[[Any], Any]:
    def doubled(x: Any) -> Any:
        return np.multiply(x, 2, out=kept)

    return doubled


class Failing(d5.CustomPythonOp):
    """Raises in one of its methods."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def infer(self, inputs: Sequence[Any]) -> Any:
        return None if self.where != "infer" else inputs[7]

    def forward(self, x: Any) -> Any:
        return x * 1 if self.where != "forward" else x[7]

    def backward(self, grads: Any, fwd_inputs: Any, fwd_outputs: Any) -> Any:
        return grads[0] @ np.ones((5, 5)) if self.where == "backward" else grads[0] * 1


@pytest.mark.parametrize("where", ["infer", "forward", "backward"])
@pytest.mark.parametrize("world", ["numpy", "torch"])
def test_what_an_operator_raises_names_it(where: str, world: str) -> None:
    """Whatever its own code raises."""
    with pytest.raises((OperatorError, ConfigurationError), match=f"{where} of the operator Failing failed"):
        WORLDS[world](Failing(where))
