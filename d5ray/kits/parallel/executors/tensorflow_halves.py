"""A piece of a Network under TensorFlow as two graph functions: forwards, and backwards from what is saved"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, final

from d5ray.frameworks.tensorflow.nodes import calls, specification
from d5ray.kits.parallel.collectives.tensorflow import passes_apart
from d5ray.kits.parallel.stages.piece import Piece
from d5ray.networks.executors.fusion import fused
from d5ray.networks.executors.graph_executor import draws
from d5ray.networks.executors.plan import Plan, plan
from d5ray.networks.graph.tensors import is_floating
from d5ray.networks.network import Network
from d5ray.operators.collectives import Collectives
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.randomness import SeededNumbers

Tensor = Any  # of TensorFlow
# What needs the shape of a tensor alone: computed forwards, so that the tensor is not saved for it.
OF_SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank"})


@final
class Halves:
    """The two halves of a piece's graph: both passes are traced as one, which is then taken apart.

    read        the inputs that are read, then the parameters and states
    drawing     the nodes that draw at random; for each a seed is given, (2,) int64
    wanted      the outputs
    state       the states that are replaced
    sloped      the outputs whose gradients are given
    sources     the inputs, then the parameters, that gradients are computed for
    given_again how many inputs the backward half reads
    """

    def __init__(self, piece: Piece, where: str, collectives: Collectives | None) -> None:
        network = piece.network
        self._collectives = collectives
        made = plan(network, network.outputs, training=True)
        self.read = (*made.inputs, *held_in(network, made))
        self.wanted, self.state = made.wanted, tuple(made.state)
        self._numbers = {node.name: SeededNumbers() for _, node in made.nodes if draws(node)}
        self.drawing = tuple(self._numbers)
        self.sloped = tuple(name for name in self.wanted if is_floating(network.outputs[name].dtype))
        self.sources = tuple(
            name for name in self.read if name in piece.differentiated or name in network.parameters
        )
        self._network, self._made = network, fused(network, made)
        known, seed = network.descriptors, tf.TensorSpec((2,), tf.int64)
        signature = [
            *(specification(known[name]) for name in self.read),
            *(seed for _ in self.drawing),
            *(specification(known[name]) for name in self.sloped),
        ]
        with tf.device(where):
            self._take_apart(signature)

    def forward(
        self, read: Sequence[Tensor], seeds: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
        """The outputs, the next state, and what the backward half needs: arguments, and what is saved."""
        arguments = [*read, *seeds]
        found = self._forward(*arguments)
        outputs, state = len(self.wanted), len(self.wanted) + len(self.state)
        reread = [arguments[place] for place in self._reread]
        return found[:outputs], found[outputs:state], reread, found[state:]

    def backward(
        self, reread: Sequence[Tensor], saved: Sequence[Tensor], slopes: Sequence[Tensor]
    ) -> list[Tensor]:
        """The gradients of the sources."""
        return list(self._backward(*reread, *saved, *slopes))

    def _take_apart(self, signature: Sequence[Any]) -> None:
        """Trace the whole, and find what the backward pass reads of the forward pass."""
        traced: dict[str, list[Tensor]] = {}
        forwards: set[Any] = set()

        def trace(*arguments: Tensor) -> list[Tensor]:
            traced["arguments"] = list(arguments)
            traced["outputs"] = self._outputs(arguments)
            forwards.update(tf.compat.v1.get_default_graph().get_operations())
            traced["gradients"] = self._gradients(arguments, traced["outputs"])
            return [*traced["outputs"], *traced["gradients"]]

        with passes_apart():
            whole = tf.compat.v1.wrap_function(trace, signature)
        arguments, slopes = traced["arguments"], len(self.sloped)
        first, last = arguments[: len(arguments) - slopes], arguments[len(arguments) - slopes :]
        between = _between(whole.graph.get_operations(), forwards)
        self._reread = [place for place, each in enumerate(first) if each.ref() in between]
        self.given_again = sum(place < len(self._made.inputs) for place in self._reread)
        own = {each.ref() for each in arguments}
        saved = [each.deref() for each in between if each not in own]
        reread = [first[place] for place in self._reread]
        self._forward = subgraph(whole.graph, first, [*traced["outputs"], *saved])
        self._backward = subgraph(whole.graph, [*reread, *saved, *last], traced["gradients"])

    def _outputs(self, arguments: Sequence[Tensor]) -> list[Tensor]:
        values = dict(zip(self.read, arguments, strict=False))
        seeds = arguments[len(self.read) :]
        for numbers, seed in zip(self._numbers.values(), seeds, strict=False):
            numbers.begin(seed)
        return computed(self._network, self._made, values, self._collectives, self._numbers)

    def _gradients(self, arguments: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[Tensor]:
        sources = [each for name, each in zip(self.read, arguments, strict=False) if name in self.sources]
        roots = [each for name, each in zip(self.wanted, outputs, strict=False) if name in self.sloped]
        if not roots or not sources:
            return [tf.zeros_like(each) for each in sources]
        slopes = list(arguments[len(arguments) - len(roots) :])
        none = tf.UnconnectedGradients.ZERO
        found = tf.gradients(roots, sources, grad_ys=slopes, unconnected_gradients=none)
        return [tf.convert_to_tensor(each) for each in found]  # of a Gather they come as slices


def held_in(network: Network, made: Plan) -> tuple[str, ...]:
    """The parameters and states that a plan's nodes read."""
    read = made.read
    return tuple(name for name in (*network.parameters, *network.state_values) if name in read)


def computed(
    network: Network,
    made: Plan,
    values: dict[str, Tensor],
    collectives: Collectives | None,
    numbers: Mapping[str, SeededNumbers] | None = None,
) -> list[Tensor]:
    """What is wanted, and the next state, from a plan's other tensors by name; numbers: in training, by the
    names of the nodes that draw them."""
    read, drawn = made.read, numbers or {}
    own = calls(
        network,
        made,
        evaluating=numbers is None,
        random=lambda node: drawn.get(node.name),
        collectives=collectives,
        observer=None,
        trained=(),
    )
    values |= {name: tf.constant(each) for name, each in network.constants.items() if name in read}
    for call in own:
        call(values)
    return [tf.identity(values[name]) for name in (*made.wanted, *made.state.values())]


def subgraph(graph: Any, feeds: Sequence[Tensor], fetches: Sequence[Tensor]) -> Any:
    """The function from some tensors of a graph to others, with no operation but those that lie between.

    (TensorFlow's own `prune` walks past what is fed, and fails where one of several outputs is.)
    """
    given = {each.ref() for each in feeds}
    needed: set[str] = set()
    read: set[str] = set()
    waiting = [each.op for each in fetches if each.ref() not in given]
    while waiting:
        operation = waiting.pop()
        if operation.name in needed:
            continue
        needed.add(operation.name)
        waiting += operation.control_inputs
        for each in operation.inputs:
            if each.ref() in given:
                read.add(each.name)
            else:
                waiting.append(each.op)
    definition = graph.as_graph_def()
    nodes = [node for node in definition.node if node.name in needed]
    for node in nodes:
        node.attr.pop("_class", None)  # which other node's device it shares; that one may not come along
    del definition.node[:]
    definition.node.extend(nodes)

    def call(*arguments: Tensor) -> list[Tensor]:
        known = {each.ref(): argument for each, argument in zip(feeds, arguments, strict=True)}
        found = tf.graph_util.import_graph_def(
            definition,
            input_map={
                each.deref().name: argument for each, argument in known.items() if each.deref().name in read
            },
            return_elements=[each.name for each in fetches if each.ref() not in given],
            name="",
        )
        made = iter(found)
        return [known[each.ref()] if each.ref() in given else next(made) for each in fetches]

    return tf.compat.v1.wrap_function(call, [tf.TensorSpec(each.shape, each.dtype) for each in feeds])


def _between(operations: Sequence[Any], forwards: Collection[Any]) -> dict[Any, None]:
    """References to the tensors that the forward pass makes, or is given, and others read; no constants."""
    first = set(forwards)
    for each in operations:
        if each.type in OF_SHAPES and first.issuperset(source.op for source in each.inputs):
            first.add(each)
    return {
        source.ref(): None
        for each in operations
        if each not in first
        for source in each.inputs
        if source.op in first and not _is_constant(source.op)
    }


def _is_constant(operation: Any) -> bool:
    """One that waits for nothing, such as an assertion, which would come along."""
    return operation.type == "Const" and not operation.control_inputs
