"""pieces: a network cut into pieces, one for each stage"""

from collections.abc import Mapping

from d5ray.checks import check_kind
from d5ray.errors import ConfigurationError
from d5ray.kits.parallel.stages.cut import Cutting, order
from d5ray.kits.parallel.stages.piece import Piece
from d5ray.networks.executors.plan import depending
from d5ray.networks.graph.tensors import is_floating
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node


def pieces(network: Network, cut: Cutting) -> tuple[Piece, ...]:
    """The pieces of a network, in the order of their stages; together they compute what it computes.

    The network is unchanged, and shares its values with the pieces. For training it needs labels among its
    inputs and a loss among its outputs: see `d5ray.networks.executors.labelled_network`, or
    `Network.add_loss`.

    Raises `ConfigurationError` for a node that is unknown, a stage without operators, a cycle of stages (a
    later one feeds an earlier one), a state that several stages read, and a tensor of an unknown type
    between stages.
    """
    check_kind("network", network, Network, "a Network, such as Network.from_onnx(path)")
    if not isinstance(cut, Cutting):
        raise ConfigurationError(
            f"cut is {cut!r} ({type(cut).__name__}): give Cut(('conv2', 'fc1')), with the names of the nodes "
            "with which further stages begin, or Balanced(3)"
        )
    stages = cut.stages_of(network)
    nodes = tuple(order(network))
    count = _checked_count(stages)
    makers = {name: stages[node.name] for node in nodes for name in node.outputs if name}
    readers = _readers(nodes, stages)
    _check_direction(nodes, stages, makers)
    _check_state(network, readers)
    results = {name: _giver(network, name, makers, readers) for name in network.outputs}
    sloped = depending(enumerate(network.nodes), network.parameters)
    return tuple(
        _piece(
            network, index, count, [node for node in nodes if stages[node.name] == index],
            makers, readers, results, sloped,
        )
        for index in range(count)
    )  # fmt: skip


def _piece(
    network: Network,
    index: int,
    count: int,
    own: list[Node],
    makers: Mapping[str, int],
    readers: Mapping[str, tuple[int, ...]],
    results: Mapping[str, int],
    sloped: frozenset[str],
) -> Piece:
    made = [name for node in own for name in node.outputs if name]
    read = dict.fromkeys(name for node in own for name in node.inputs if name)
    incoming = {name: makers[name] for name in read if makers.get(name, index) != index}
    outgoing = {
        name: later
        for name in made
        if (later := tuple(stage for stage in readers.get(name, ()) if stage != index))
    }
    given = tuple(name for name in results if results[name] == index)
    part = network.part(own, dict.fromkeys((*outgoing, *given)), f"{network.name}[{index}]")
    return Piece(
        part,
        index,
        count,
        incoming,
        outgoing,
        given,
        {name: readers[name] for name in part.parameters if len(readers.get(name, ())) > 1},
        frozenset(
            name
            for name in (*incoming, *outgoing)
            if name in sloped and name in part.descriptors and is_floating(part.descriptors[name].dtype)
        ),
    )


def _checked_count(stages: Mapping[str, int]) -> int:
    """The number of stages. Raises `ConfigurationError` unless each has an operator."""
    if not stages:
        raise ConfigurationError("the network has no nodes: there is nothing to cut")
    count = max(stages.values()) + 1
    counted = set(stages.values())
    if min(counted) < 0:
        raise ConfigurationError(f"the cut has the stage {min(counted)}: they are counted from 0")
    empty = [stage for stage in range(count) if stage not in counted]
    if empty:
        raise ConfigurationError(
            f"the cut leaves stage {empty[0]} of {count} without operators: number the stages from 0 without "
            "gaps"
        )
    return count


def _readers(nodes: tuple[Node, ...], stages: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """The stages that read a tensor, in their order."""
    found: dict[str, set[int]] = {}
    for node in nodes:
        for name in filter(None, node.inputs):
            found.setdefault(name, set()).add(stages[node.name])
    return {name: tuple(sorted(each)) for name, each in found.items()}


def _check_direction(nodes: tuple[Node, ...], stages: Mapping[str, int], makers: Mapping[str, int]) -> None:
    for node in nodes:
        for name in node.inputs:
            if makers.get(name, 0) > stages[node.name]:
                maker = next(each for each in nodes if name in each.outputs)
                raise ConfigurationError(
                    f"the cut leaves a cycle: stage {makers[name]} would feed stage {stages[node.name]}, "
                    f"since {node} reads {name!r}, which {maker} makes; put {node.name!r} in stage "
                    f"{makers[name]} or a later one, or {maker.name!r} in stage {stages[node.name]} or an "
                    "earlier one"
                )


def _check_state(network: Network, readers: Mapping[str, tuple[int, ...]]) -> None:
    for name in network.state_values:
        found = readers.get(name, ())
        if len(found) > 1:
            nodes = ", ".join(str(node) for node in network.readers(name))
            raise ConfigurationError(
                f"the state {name!r} is read in the stages {', '.join(map(str, found))} ({nodes}), and only "
                "one of them could keep it: put these nodes in one stage"
            )


def _giver(
    network: Network, output: str, makers: Mapping[str, int], readers: Mapping[str, tuple[int, ...]]
) -> int:
    """The stage that gives an output of the network: its maker, or a reader of what comes from outside."""
    if output in makers:
        return makers[output]
    return readers.get(output, (0,))[0]
