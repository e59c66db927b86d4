"""Gradients of array operators held against central differences, and against PyTorch's"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays import OPERATORS

Array = np.ndarray[Any, Any]
Inputs = Sequence[Array | None]
STEP = 1e-6


def context(
    kind: str, inputs: Inputs, attributes: Mapping[str, Any] | None = None, outputs: int = 1, **more: Any
) -> NodeContext:
    """Where a node of this type stands that reads these inputs."""
    names = tuple("" if each is None else f"x{index}" for index, each in enumerate(inputs))
    written = tuple(f"y{index}" for index in range(outputs))
    return NodeContext(Node(kind, names, written, dict(attributes or {})), **more)


def normal(*shapes: tuple[int, ...], seed: int = 0) -> list[Array]:
    """Random arrays of float64."""
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(shape) for shape in shapes]


def forward(xp: Any, place: NodeContext, inputs: Inputs) -> list[Any]:
    """What the operator gives under an array module, with all that it keeps; it leaves its inputs alone."""
    on_device = moved(xp, inputs)
    outputs = OPERATORS[place.node.type].forward(xp, place, on_device)
    for given, after in zip(inputs, on_device, strict=True):
        if given is not None:
            np.testing.assert_array_equal(on_host(after), given)
    return list(outputs)


def backward(xp: Any, place: NodeContext, inputs: Inputs, cotangents: Inputs) -> list[Array | None]:
    """The gradients that the operator gives for these of its outputs."""
    outputs = forward(xp, place, inputs)
    found = OPERATORS[place.node.type].backward(xp, place, moved(xp, cotangents), moved(xp, inputs), outputs)
    return [None if each is None else on_host(each) for each in found]


def moved(xp: Any, arrays: Inputs) -> list[Any]:
    """The arrays as the array module's."""
    return [None if each is None else xp.asarray(each) for each in arrays]


def on_host(array: Any) -> Array:
    """As NumPy's."""
    return np.asarray(array.get() if hasattr(array, "get") else array)


def cotangents_for(place: NodeContext, outputs: Sequence[Any]) -> list[Array | None]:
    """A random gradient for every floating-point output that the node has."""
    generator = np.random.default_rng(1)
    asked = outputs[: len(place.node.outputs)]
    arrays = [on_host(each) for each in asked]
    return [
        np.asarray(generator.standard_normal(each.shape)) if each.dtype.kind == "f" else None
        for each in arrays
    ]


def check(xp: Any, place: NodeContext, inputs: Inputs, without: Sequence[int] = ()) -> None:
    """The gradients of all floating-point inputs but some are central differences; the others have none.

    Held against NumPy's own differences in float64, every element, for random cotangents.
    """
    cotangents = cotangents_for(place, forward(np, place, inputs))
    found = backward(xp, place, inputs, cotangents)
    assert len(found) == len(inputs)
    for index, (given, gradient) in enumerate(zip(inputs, found, strict=True)):
        if given is None or given.dtype.kind != "f" or index in without:
            assert gradient is None, f"input {index} has a gradient"
            continue
        assert gradient is not None, f"input {index} has no gradient"
        assert gradient.shape == given.shape and gradient.dtype == given.dtype
        expected = _differences(place, inputs, index, cotangents)
        np.testing.assert_allclose(gradient, expected, rtol=2e-6, atol=2e-7, err_msg=f"input {index}")
    _check_in_single_precision(xp, place, inputs, cotangents, found)


def check_against_torch(
    place: NodeContext, inputs: Inputs, function: Callable[..., Any], without: Sequence[int] = ()
) -> None:
    """Outputs and gradients equal those of PyTorch's own function, in float64."""
    outputs = forward(np, place, inputs)
    tensors = [None if each is None else torch.tensor(each) for each in inputs]
    for tensor in tensors:
        if tensor is not None and tensor.dtype == torch.float64:
            tensor.requires_grad_()
    expected = function(*tensors)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for output, wanted in zip(outputs, expected, strict=False):
        assert on_host(output).shape == tuple(wanted.shape)
        np.testing.assert_allclose(on_host(output), wanted.detach().numpy(), rtol=1e-9, atol=1e-9)
    cotangents = cotangents_for(place, outputs)
    for wanted, cotangent in zip(expected, cotangents, strict=False):
        if cotangent is not None and wanted.requires_grad:
            wanted.backward(torch.tensor(cotangent), retain_graph=True)
    for index, (tensor, gradient) in enumerate(
        zip(tensors, backward(np, place, inputs, cotangents), strict=True)
    ):
        if tensor is not None and tensor.requires_grad and index not in without:
            assert gradient is not None and tensor.grad is not None
            np.testing.assert_allclose(gradient, tensor.grad.numpy(), rtol=1e-8, atol=1e-9)


def _check_in_single_precision(
    xp: Any, place: NodeContext, inputs: Inputs, cotangents: Inputs, expected: Sequence[Array | None]
) -> None:
    """In float32 the gradients are of that type, and near those of float64."""
    narrow, given = _single(inputs), _single(cotangents)
    for gradient, wanted in zip(backward(xp, place, narrow, given), expected, strict=True):
        assert (gradient is None) == (wanted is None)
        if gradient is not None and wanted is not None and wanted.size:
            assert gradient.dtype == np.float32
            np.testing.assert_allclose(gradient, wanted, rtol=1e-3, atol=1e-3 * abs(wanted).max())


def _single(arrays: Inputs) -> list[Array | None]:
    return [
        each.astype(np.float32) if each is not None and each.dtype == np.float64 else each for each in arrays
    ]


def _differences(place: NodeContext, inputs: Inputs, index: int, cotangents: Inputs) -> Array:
    """d⟨cotangents, outputs⟩ / d inputs[index]."""
    given = inputs[index]
    assert given is not None
    found = np.zeros(given.shape)
    for element in np.ndindex(given.shape):
        sides = []
        for step in (STEP, -STEP):
            changed = given.copy()
            changed[element] += step
            arrays = [*inputs[:index], changed, *inputs[index + 1 :]]
            outputs = OPERATORS[place.node.type].forward(np, place, arrays)
            sides.append(
                sum(
                    float((cotangent * output).sum())
                    for cotangent, output in zip(cotangents, outputs, strict=False)
                    if cotangent is not None
                )
            )
        found[element] = (sides[0] - sides[1]) / (2 * STEP)
    return found
