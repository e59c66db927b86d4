"""A piece of a Network under TensorFlow as two graph functions: forwards, and backwards from what is saved"""

from collections.abc import Collection, Sequence
from typing import Any, final

from d5ray.frameworks.tensorflow.nodes import calls, compute_all, specification
from d5ray.kits.parallel.collectives.tensorflow import passes_apart
from d5ray.kits.parallel.stages.piece import Piece
from d5ray.networks.executors.fusion import fused
from d5ray.networks.executors.graph_executor import draws
from d5ray.networks.executors.plan import plan
from d5ray.networks.graph.tensors import is_floating
from d5ray.operators.collectives import Collectives
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.randomness import SeededNumbers

Tensor = Any  # of TensorFlow
# What needs the shape of a tensor alone: computed forwards, so that the tensor is not saved for it.
OF_SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank"})


@final
class Halves:
    """The two halves of a piece's graph: both passes are traced as one, which is then taken apart.

    given       the inputs that are read
    held        the parameters and states that are read
    drawing     the nodes that draw at random; for each a seed is given, (2,) int64
    wanted      the outputs
    state       the states that are replaced
    sloped      the outputs whose gradients are given
    sources     the inputs, then the parameters, that gradients are computed for
    """

    def __init__(self, piece: Piece, where: str, collectives: Collectives | None) -> None:
        network = piece.network
        self._collectives = collectives
        made = plan(network, network.outputs, training=True)
        self.given, self.wanted, self.state = made.inputs, made.wanted, tuple(made.state)
        self.held = tuple(name for name in (*network.parameters, *network.state_values) if name in made.read)
        self._numbers = {node.name: SeededNumbers() for _, node in made.nodes if draws(node)}
        self.drawing = tuple(self._numbers)
        self.sloped = tuple(name for name in self.wanted if is_floating(network.outputs[name].dtype))
        self.sources = tuple(
            name
            for name in (*self.given, *self.held)
            if name in piece.differentiated or name in network.parameters
        )
        self._network, self._made = network, fused(network, made)
        known, seed = network.descriptors, tf.TensorSpec((2,), tf.int64)
        signature = [
            *(specification(known[name]) for name in (*self.given, *self.held)),
            *(seed for _ in self.drawing),
            *(specification(known[name]) for name in self.sloped),
        ]
        with tf.device(where):
            self._take_apart(signature)

    def forward(
        self, given: Sequence[Tensor], held: Sequence[Tensor], seeds: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """The outputs, the next state, and what the backward half needs beside the arguments."""
        found = self._forward(*given, *held, *seeds)
        outputs, state = len(self.wanted), len(self.state)
        return found[:outputs], found[outputs : outputs + state], found[outputs + state :]

    def backward(
        self,
        given: Sequence[Tensor],
        held: Sequence[Tensor],
        seeds: Sequence[Tensor],
        saved: Sequence[Tensor],
        slopes: Sequence[Tensor],
    ) -> list[Tensor]:
        """The gradients of the sources."""
        arguments = [*given, *held, *seeds]
        return list(self._backward(*[arguments[place] for place in self._reread], *saved, *slopes))

    @property
    def reread(self) -> tuple[str, ...]:
        """The inputs that the backward half reads."""
        return tuple(self.given[place] for place in self._reread if place < len(self.given))

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
        self._reread = tuple(place for place, each in enumerate(first) if each.ref() in between)
        own = {each.ref() for each in arguments}
        saved = [each.deref() for each in between if each not in own]
        reread = [first[place] for place in self._reread]
        self._forward = subgraph(whole.graph, first, [*traced["outputs"], *saved])
        self._backward = subgraph(whole.graph, [*reread, *saved, *last], traced["gradients"])

    def _outputs(self, arguments: Sequence[Tensor]) -> list[Tensor]:
        made, network = self._made, self._network
        names = (*self.given, *self.held)
        values = dict(zip(names, arguments, strict=False))
        seeds = arguments[len(names) :]
        for numbers, seed in zip(self._numbers.values(), seeds, strict=False):
            numbers.begin(seed)
        own = calls(
            network,
            made,
            evaluating=False,
            random=lambda node: self._numbers.get(node.name),
            collectives=self._collectives,
            observer=None,
            trained=(),
        )
        compute_all(network, own, values, made.read)
        return [tf.identity(values[name]) for name in (*self.wanted, *made.state.values())]

    def _gradients(self, arguments: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[Tensor]:
        names = (*self.given, *self.held)
        sources = [each for name, each in zip(names, arguments, strict=False) if name in self.sources]
        roots = [each for name, each in zip(self.wanted, outputs, strict=False) if name in self.sloped]
        if not roots or not sources:
            return [tf.zeros_like(each) for each in sources]
        slopes = list(arguments[len(arguments) - len(roots) :])
        none = tf.UnconnectedGradients.ZERO
        found = tf.gradients(roots, sources, grad_ys=slopes, unconnected_gradients=none)
        return [tf.convert_to_tensor(each) for each in found]  # of a Gather they come as slices


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
