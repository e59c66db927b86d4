"""The calls that a Network's nodes become under TensorFlow, built once"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from d5ray.networks.events.event import BACKWARD, FORWARD
from d5ray.networks.events.observer import Observer
from d5ray.networks.executors.fusion import LINEAR
from d5ray.networks.executors.plan import Plan, depending
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import Kernel
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.lookup import implementation
from d5ray.ops.tensorflow.held import holder
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.products import linear_layer

Tensor = Any  # of TensorFlow
PRODUCTS: Final = ("MatMul", "Gemm", "Conv", "ConvTranspose")
Call = Callable[[dict[str, Tensor]], None]  # reads and writes tensors by their names


def calls(
    network: Network,
    made: Plan,
    *,
    evaluating: bool,
    random: Callable[[Node], Any],
    collectives: Any,
    observer: Observer | None,
    trained: Iterable[str],
    products: str | None = None,
) -> tuple[Call, ...]:
    """The calls of the plan's nodes, in its order. random: what a node draws from.

    products: the type to which matrix products and convolutions of float32 round what they multiply.
    """
    moving = depending(made.nodes, () if evaluating else trained)
    found = []
    for index, node in made.nodes:
        if node.domain == LINEAR:
            function = linear_layer(bool(node.attributes["transB"]))
            found.append(_call(_rounded(function, products), node, network.descriptors))
            continue
        at = network.site(node, evaluating=evaluating, random=random(node), collectives=collectives)
        function = implementation("tensorflow", at)
        if node.type in PRODUCTS and not node.domain:
            function = _rounded(function, products)
        if observer is not None:
            function = _watched(function, node, index, observer, moving)
        found.append(_call(function, node, network.descriptors))
    return tuple(found)


def specification(descriptor: TensorDescriptor) -> Any:
    """TensorFlow's `TensorSpec` of a descriptor; open sizes stay open."""
    shape = None
    if descriptor.shape is not None:
        shape = [size if isinstance(size, int) else None for size in descriptor.shape]
    return tf.TensorSpec(shape, holder(descriptor.dtype))


def read_as_filters(network: Network) -> frozenset[str]:
    """The tensors that nodes read as weights (out, in, *kernel), TensorFlow as (*kernel, in, out)."""
    nodes = [node for node in network.nodes if not node.domain]
    multiplied = {node.inputs[1] for node in nodes if node.type == "MatMul"}
    found = set()
    for node in nodes:
        if node.type in ("Conv", "ConvTranspose") or (node.type == "Gemm" and node.attributes.get("transB")):
            found.add(node.inputs[1])
        elif node.type == "Transpose" and node.attributes.get("perm", (1, 0)) == (1, 0):
            found.update(node.inputs if multiplied.issuperset(node.outputs) else ())
    return frozenset(found)


def _rounded(function: Kernel, products: str | None) -> Kernel:
    """The function of float32 with its inputs rounded to another type, in which it computes."""
    if products is None:
        return function

    def rounded(*inputs: Tensor | None) -> Any:
        given = [
            tf.cast(each, products) if each is not None and each.dtype == tf.float32 else each
            for each in inputs
        ]
        return tf.cast(function(*given), tf.float32)

    return rounded


def _call(function: Kernel, node: Node, known: Mapping[str, TensorDescriptor]) -> Call:
    """The call of a function for a node; the network's number of axes is used where the graph knows none."""

    def call(values: dict[str, Tensor]) -> None:
        made = function(*[values[name] if name else None for name in node.inputs])
        for name, value in zip(node.outputs, made if len(node.outputs) > 1 else (made,), strict=False):
            if name:
                values[name] = value
                if value.shape.rank is None and name in known:
                    value.set_shape(specification(known[name]).shape)

    return call


def _watched(function: Kernel, node: Node, index: int, observer: Observer, moving: frozenset[str]) -> Kernel:
    """The function between what tells the observer; it runs eagerly. Backwards TensorFlow's tape comes the
    other way: through the outputs when all their gradients are there, then through the inputs."""
    arrived: list[tuple[Tensor, ...]] = []
    into = tuple(name in moving for name in node.inputs)
    out = tuple(name in moving for name in node.outputs)

    def watched(*inputs: Tensor | None) -> Any:
        shown = tuple(inputs)

        def after_backward(gradients: tuple[Tensor, ...]) -> None:
            before = arrived.pop() if arrived else ()
            observer.after_operator(node, index, BACKWARD, before, gradients)

        def before_backward(gradients: tuple[Tensor, ...]) -> None:
            arrived.append(gradients)
            observer.before_operator(node, index, BACKWARD, gradients)

        passed = _through(inputs, into, after_backward)
        observer.before_operator(node, index, FORWARD, shown)
        made = function(*passed)
        several = len(node.outputs) > 1
        outputs = tuple(made) if several else (made,)
        observer.after_operator(node, index, FORWARD, shown, outputs)
        left = _through(outputs, out, before_backward)
        return left if several else left[0]

    return watched


def _through(
    tensors: Sequence[Tensor | None], moving: Sequence[bool], told: Callable[[tuple[Tensor, ...]], None]
) -> tuple[Tensor | None, ...]:
    """The tensors themselves; `told` gets the gradients of the moving ones when these come back."""
    places = [
        place
        for place, (each, moves) in enumerate(zip(tensors, moving, strict=True))
        if moves and each is not None and each.dtype.is_floating
    ]
    if not places:
        return tuple(tensors)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def pass_on(*floating: Tensor) -> Any:
        def backward(*gradients: Tensor) -> Any:
            whole: list[Tensor | None] = [None] * len(tensors)
            for place, gradient in zip(places, gradients, strict=True):
                whole[place] = tf.convert_to_tensor(gradient)  # of a Gather they come as slices
            told(tuple(whole))
            return gradients

        return [tf.identity(each) for each in floating], backward

    found = pass_on(*[tensors[place] for place in places])
    whole = list(tensors)
    for place, each in zip(places, found if isinstance(found, (list, tuple)) else [found], strict=True):
        whole[place] = each
    return tuple(whole)
