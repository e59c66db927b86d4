"""One operator under every framework: its outputs, and the gradients of their sum with fixed weights"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.arrays import OPERATORS
from d5ray.ops.torch import FACTORIES
from d5ray.ops.torch.types import array_of, tensor_of

Array = np.ndarray[Any, Any]
Inputs = Sequence[Array | None]
Arrays = list[Array | None]  # None for an input that is left out, or has no gradient
STEERING: Mapping[str, tuple[int, ...]] = {  # floating-point inputs that say how, not what
    "CastLike": (1,), "RoiAlign": (1,), "Resize": (1, 2), "Dropout": (1,), "NegativeLogLikelihoodLoss": (2,),
    "SoftmaxCrossEntropyLoss": (2,),
}  # fmt: skip


class Found(NamedTuple):
    """All in NumPy; an integer output has no gradient, nor has an input from which none comes."""

    outputs: Arrays
    gradients: Arrays


def place(
    kind: str, inputs: Inputs, attributes: Mapping[str, Any] | None = None, outputs: int = 1, **more: Any
) -> NodeContext:
    """Where a node stands of which nothing is known but itself, with a generator of its own."""
    names = tuple("" if x is None else f"x{index}" for index, x in enumerate(inputs))
    written = tuple(f"y{index}" for index in range(outputs))
    domain = "d5ray" if kind == "MeanSquaredError" else ""
    node = Node(kind, names, written, dict(attributes or {}), "here", domain)
    return NodeContext(node, **{"random": np.random.default_rng(0), **more})


def known(context: NodeContext, inputs: Inputs) -> NodeContext:
    """As in an exported network: integer and boolean inputs are constants, types and shapes are known."""
    constants = {i: x for i, x in enumerate(inputs) if x is not None and x.dtype.kind in "iub"}
    described = tuple(None if x is None else TensorDescriptor(x.dtype, x.shape) for x in inputs)
    return NodeContext(
        context.node, constants, described, evaluating=context.evaluating, random=context.random
    )


def is_floating(x: Array | None) -> bool:
    """True also for bfloat16."""
    return x is not None and x.dtype.kind in "fV"


def weights(y: Array) -> Array:
    """A number for every element, always the same, of the type of y."""
    found: Array = np.sin(1 + 2.3 * np.arange(y.size)).reshape(y.shape).astype(y.dtype)
    return found


def differentiated(context: NodeContext, inputs: Inputs, steering: Sequence[int] = ()) -> list[int]:
    """The inputs that have a gradient."""
    without = (*STEERING.get(context.node.type, ()), *steering)
    return [index for index, x in enumerate(inputs) if is_floating(x) and index not in without]


def moved(xp: Any, arrays: Inputs) -> list[Any]:
    """The arrays as the array module's."""
    return [None if x is None else xp.asarray(x) for x in arrays]


def on_host(array: Any) -> Array:
    """As NumPy's."""
    return np.asarray(array.get() if hasattr(array, "get") else array)


@dataclass
class Drawn:
    """What a generator of NumPy's draws, as another module's arrays."""

    generator: Any
    xp: Any

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.xp.asarray(getattr(self.generator, name)(*args, **kwargs))


def of_arrays(context: NodeContext, inputs: Inputs, backwards: bool = True, xp: Any = np) -> Found:
    """By the array operator, under NumPy or CuPy, which leaves its inputs as they are."""
    operator, given = OPERATORS[context.node.type], moved(xp, inputs)
    if xp is not np:
        context = replace(context, random=Drawn(context.random, xp))
    made = operator.forward(xp, context, given)
    outputs = [on_host(y) for y in made][: len(context.node.outputs)]
    slopes = [weights(y) if is_floating(y) else None for y in outputs]
    gradients = operator.backward(xp, context, moved(xp, slopes), given, made) if backwards else ()
    own = (np.ndarray, np.generic) if xp is np else xp.ndarray
    assert all(each is None or isinstance(each, own) for each in (*made, *gradients)), context.node
    for before, after in zip(inputs, given, strict=True):
        assert before is None or before.tobytes() == on_host(after).tobytes()
    return Found([*outputs], [None if each is None else on_host(each) for each in gradients])


def of_torch(
    context: NodeContext, inputs: Inputs, backwards: bool = True, compiled: bool = False, device: str = "cpu"
) -> Found:
    """By PyTorch's function, differentiated by PyTorch, which leaves its inputs as they are."""
    with torch.device(device), torch.random.fork_rng():
        torch.manual_seed(1)
        built, count = FACTORIES[context.node.type](context), len(context.node.outputs)
        tensors = [None if x is None else tensor_of(x.copy()).to(device) for x in inputs]
        places = _differentiated(context, inputs) if backwards else []
        for index in places:
            tensors[index].requires_grad_()  # type: ignore[union-attr]
        if compiled:
            torch._dynamo.reset()
            built = torch.compile(built, backend="aot_eager", fullgraph=True)
        made = built(*tensors)
    outputs = [made] if count == 1 else list(made)
    flowing = [y for y in outputs if y is not None and y.requires_grad]
    gradients: Arrays = [None] * len(inputs)
    if flowing:
        slopes = [tensor_of(weights(array_of(y.detach()))) for y in flowing]
        asked = [tensors[index] for index in places]
        found = torch.autograd.grad(flowing, asked, slopes, allow_unused=True)  # type: ignore[arg-type]
        for index, each in zip(places, found, strict=True):
            gradients[index] = None if each is None else array_of(each)
    for before, after in zip(inputs, tensors, strict=True):
        assert before is None or after is None or before.tobytes() == array_of(after.detach()).tobytes()
    return Found([None if y is None else array_of(y.detach()) for y in outputs], gradients)


def of_tensorflow(
    context: NodeContext,
    inputs: Inputs,
    backwards: bool = True,
    traced: bool = False,
    opened: bool = False,
    compiled: bool = False,
) -> Found:
    """By TensorFlow's functions, differentiated by its tape: call by call, or in a graph."""
    pytest.importorskip("tensorflow")
    from d5ray.ops.tensorflow import FACTORIES as KERNELS  # noqa: PLC0415 - nobody waits for it who does not ask
    from d5ray.ops.tensorflow.library import tf  # noqa: PLC0415

    built = KERNELS[context.node.type](context)
    tensors: list[Any] = [None if x is None else tf.constant(x) for x in inputs]
    given = [index for index, x in enumerate(inputs) if x is not None]
    places = _differentiated(context, inputs) if backwards else []

    def run(*arguments: Any) -> Any:
        every = list(tensors)
        for index, tensor in zip(given, arguments, strict=True):
            every[index] = tensor
        with tf.GradientTape() as tape:
            asked = [every[index] for index in places]
            tape.watch(asked)
            made = built(*every)
            outputs = made if isinstance(made, tuple) else (made,)
            sums = [
                tf.reduce_sum(y * _weights(tf, y)) for y in outputs if y is not None and y.dtype.is_floating
            ]
        return outputs, tape.gradient(sums, asked) if sums and asked else [None] * len(asked)

    if traced:
        signature = [tf.TensorSpec(tensors[index].shape, tensors[index].dtype) for index in given]
        if opened and signature and signature[0].shape.rank and given[0] not in context.constants:
            signature[0] = tf.TensorSpec([None, *signature[0].shape[1:]], signature[0].dtype)
        run = tf.function(run, input_signature=signature, jit_compile=compiled)
    outputs, found = run(*(tensors[index] for index in given))
    gradients: Arrays = [None] * len(inputs)
    for index, each in zip(places, found, strict=True):
        gradients[index] = None if each is None else tf.convert_to_tensor(each).numpy()
    assert len(outputs) == len(context.node.outputs)
    return Found([None if y is None else y.numpy() for y in outputs], gradients)


def _differentiated(context: NodeContext, inputs: Inputs) -> list[int]:
    """Of a BatchNormalization both frameworks take what ran as it is."""
    return differentiated(context, inputs, (3, 4) if context.node.type == "BatchNormalization" else ())


def _weights(tf: Any, y: Any) -> Any:
    """Those of `weights`."""
    every = tf.sin(1 + 2.3 * tf.range(tf.size(y), dtype=tf.float64))
    return tf.cast(tf.reshape(every, tf.shape(y)), y.dtype)


RUNS: Mapping[str, Callable[..., Found]] = {
    "numpy": of_arrays, "torch": of_torch, "tensorflow": of_tensorflow,
    "torch compiled": partial(of_torch, compiled=True),
    "tensorflow graph": partial(of_tensorflow, traced=True),
}  # fmt: skip


def run(framework: str, kind: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
    """The outputs of one node, which are the same whether much or nothing is known of it."""
    arrays = [None if x is None else np.asarray(x) for x in inputs]
    context = place(kind, arrays, attributes, outputs)
    found = RUNS[framework](context, arrays, backwards=False).outputs
    again = RUNS[framework](known(context, arrays), arrays, backwards=False).outputs
    for a, b in zip(found, again, strict=True):
        np.testing.assert_array_equal(a, b)
    return found[0] if outputs == 1 else found
