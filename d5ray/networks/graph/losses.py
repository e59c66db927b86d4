"""A loss at the end of a graph: the operator that turns scores and labels into one number."""

from dataclasses import replace
from types import MappingProxyType

from d5ray.errors import ConfigurationError, nearest
from d5ray.networks.graph.edits import free
from d5ray.networks.graph.graph import Graph
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.catalogue import DOMAIN

DOMAINS = {"MeanSquaredError": DOMAIN, "NegativeLogLikelihoodLoss": "", "SoftmaxCrossEntropyLoss": ""}


def with_loss(
    graph: Graph, kind: str, scores: str, known: TensorDescriptor | None, labels: str, loss: str, axis: int
) -> Graph:
    """The graph with a loss of this kind over scores; known: what these are. See `Network.add_loss`."""
    if kind not in DOMAINS:
        raise ConfigurationError(f"there is no loss {kind!r} among the operators: {nearest(kind, DOMAINS)}")
    if known is None or known.shape is None:
        raise ConfigurationError(
            f"the loss {kind} needs scores whose shape is known, and that of {scores!r} is not: it is {known}"
        )
    names = set(graph.tensors())
    for name in (labels, loss):
        if name in names:
            raise ConfigurationError(f"there is a tensor {name!r} already: give the loss other names")
    taken = {node.name for node in graph.nodes}
    nodes, read, target = list(graph.nodes), scores, known
    if kind != "MeanSquaredError":
        rank = len(known.shape)
        if rank < 2 or not -rank <= axis < rank or axis % rank == 0:
            raise ConfigurationError(
                f"the loss {kind} needs scores (batch, ..., classes) with the classes at an axis from 1 to "
                f"{max(1, rank - 1)}, and {scores!r} is {known}, with classes_axis={axis}"
            )
        axis %= rank
        target = TensorDescriptor("int64", known.shape[:axis] + known.shape[axis + 1 :])
        if axis != 1:  # where ONNX has the classes
            order = (0, axis, *(each for each in range(1, rank) if each != axis))
            read = free(f"{scores}_by_class", {*names, labels, loss})
            attributes = MappingProxyType({"perm": order})
            nodes.append(Node("Transpose", (scores,), (read,), attributes, free("Transpose", taken)))
    nodes.append(Node(kind, (read, labels), (loss,), name=free(loss, taken), domain=DOMAINS[kind]))
    return replace(
        graph,
        nodes=tuple(nodes),
        inputs={**graph.inputs, labels: target},
        outputs=(*graph.outputs, loss),
    )
