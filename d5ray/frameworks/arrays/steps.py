"""The steps of a pass over arrays: which operator reads and writes what, decided once"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from d5ray.networks.executors.plan import Plan, depending, needed
from d5ray.networks.network import Network
from d5ray.operators.array_operator import ArrayOperator, WithoutGradient
from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.lookup import implementation

LEFT_OUT = 0  # the place that always holds None


@final
@dataclass(frozen=True, slots=True)
class Step:
    """One operator of a pass; tensors are known by their places in a list.

    frees: what nothing reads after this step. wants: for every input the place to which its gradient goes,
    or LEFT_OUT. complete: the sources whose gradients are complete when this step has run backwards.
    """

    node: Node
    index: int
    operator: ArrayOperator
    context: NodeContext
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    frees: tuple[int, ...]
    wants: tuple[int, ...]
    complete: tuple[str, ...]


@final
class Places:
    """The place of every tensor in the list of a pass."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {"": LEFT_OUT}

    def __getitem__(self, name: str) -> int:
        return self._places.setdefault(name, len(self._places))

    def __len__(self) -> int:
        return len(self._places)


def steps(
    network: Network,
    made: Plan,
    places: Places,
    *,
    framework: str,
    roots: Sequence[str] | None,
    sources: Sequence[str],
    random: Callable[[Node], Any],
    collectives: Any = None,
) -> tuple[Step, ...]:
    """The steps of a plan, differentiated where that leads from a root, such as the loss, to a source.

    roots: None where the network is evaluated, and nothing is differentiated. sources: such as the trained
    parameters. random: what a node draws from.
    """
    sites = [
        network.site(node, evaluating=roots is None, random=random(node), collectives=collectives)
        for _, node in made.nodes
    ]
    operators = [implementation(framework, context) for context in sites]
    moving = {} if roots is None else _moving(made, operators, roots, sources)
    first_readers = _first_readers(made, moving, sources)
    return tuple(
        Step(
            node,
            index,
            operator,
            context,
            tuple(places[name] for name in node.inputs),
            tuple(places[name] for name in node.outputs),
            tuple(places[name] for name in last),
            tuple(
                places[name] if name in moving and index in moving[name] else LEFT_OUT for name in node.inputs
            ),
            first_readers.get(index, ()),
        )
        for (index, node), operator, context, last in zip(
            made.nodes, operators, sites, made.last_uses, strict=True
        )
    )


def _moving(
    made: Plan, operators: list[ArrayOperator], roots: Sequence[str], sources: Sequence[str]
) -> dict[str, set[int]]:
    """The tensors whose gradients are computed, each with the nodes that contribute to it."""
    smooth = [
        (index, node)
        for (index, node), operator in zip(made.nodes, operators, strict=True)
        if not isinstance(operator, WithoutGradient)
    ]
    leading = needed([node for _, node in smooth], roots)
    on_the_way = [smooth[place] for place, _ in leading]
    depend = depending(on_the_way, sources)
    found: dict[str, set[int]] = {}
    for index, node in on_the_way:
        if depend.isdisjoint(node.outputs):
            continue
        for name in node.inputs:
            if name in depend:
                found.setdefault(name, set()).add(index)
    return found


def _first_readers(
    made: Plan, moving: dict[str, set[int]], sources: Sequence[str]
) -> dict[int, tuple[str, ...]]:
    """The sources that a node completes, for the node that contributes last, in the backward order."""
    found: dict[int, tuple[str, ...]] = {}
    for name in sources:
        if name in moving:
            first = min(moving[name])
            found[first] = (*found.get(first, ()), name)
    return found


@final
class SeededGenerator:
    """A generator of an array module, made of a seed by `generator`, that begins anew with every pass.

    begun: counts the passes that have begun, and gives the seed of this one. A generator of a GPU takes
    memory, and is made where one draws.
    """

    def __init__(self, generator: Callable[[int], Any], begun: Callable[[], tuple[int, int]]) -> None:
        self._made, self._begun = generator, begun
        self._count = -1
        self._current: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        count, seed = self._begun()
        if count != self._count:
            self._current, self._count = self._made(seed), count
        return getattr(self._current, name)
