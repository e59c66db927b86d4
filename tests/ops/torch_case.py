"""One operator built and called under PyTorch: what its tests have in common"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.torch import FACTORIES
from d5ray.ops.torch.types import array_of, tensor_of

Array = np.ndarray[Any, Any]
DOMAINS = {"MeanSquaredError": "d5ray"}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """For the modules that import it: tensors are tiny, and threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def node(kind: str, inputs: Sequence[object], outputs: int = 1, **attributes: Any) -> Node:
    """A node with an input for each of these, those that are None left out."""
    names = tuple("" if each is None else f"x{index}" for index, each in enumerate(inputs))
    given = {name: value for name, value in attributes.items() if value is not None}
    return Node(kind, names, tuple(f"y{i}" for i in range(outputs)), given, domain=DOMAINS.get(kind, ""))


def unknown(node: Node, inputs: Sequence[Array | None]) -> NodeContext:
    """A place of which nothing is known but the node."""
    return NodeContext(node)


def known(node: Node, inputs: Sequence[Array | None], evaluating: bool = False) -> NodeContext:
    """As in an exported network: integer and boolean inputs are constants, types and shapes are known."""
    constants = {i: x for i, x in enumerate(inputs) if x is not None and x.dtype.kind in "iub"}
    described = tuple(None if x is None else TensorDescriptor(x.dtype, x.shape) for x in inputs)
    return NodeContext(node, constants, described, evaluating=evaluating)


def call(context: NodeContext, inputs: Sequence[Array | None], device: str = "cpu") -> tuple[Array, ...]:
    """The outputs; `device` is PyTorch's default device meanwhile. The inputs must stay as they are."""
    with torch.device(device):
        built = FACTORIES[context.node.type](context)
        given = [None if x is None else tensor_of(x.copy()).to(device) for x in inputs]
        outputs = built(*given)
    if len(context.node.outputs) == 1:
        outputs = (outputs,)
    assert isinstance(outputs, tuple) and len(outputs) == len(context.node.outputs)
    for tensor, x in zip(given, inputs, strict=True):
        assert tensor is None or x is None or array_of(tensor).tobytes() == x.tobytes()
    return tuple(map(array_of, outputs))


def result(kind: str, *inputs: Array | None, outputs: int = 1, **attributes: Any) -> Any:
    """The outputs of a node of this type, which are the same whether much or nothing is known of it."""
    one = node(kind, inputs, outputs, **attributes)
    found = call(known(one, inputs), inputs)
    for a, b in zip(found, call(unknown(one, inputs), inputs), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return found[0] if outputs == 1 else found
