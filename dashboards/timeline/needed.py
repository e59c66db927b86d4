"""Neighbours whom an agent hears of in a step, from a run's description; nothing of the user's is executed"""

import importlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any

from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.topologies.topology import Complete, Topology
from d5ray.errors import D5Error
from d5ray.identity.moved import described_now
from d5ray.metrics.views.communication import graph
from d5ray.metrics.views.view import RunView

Needed = Callable[[int, int], Iterable[int]]  # of a rank in a step: ranks


def needed_in(view: RunView) -> Needed:
    """The ranks an agent needs: its neighbours if the run's optimizer speaks with them alone, else all."""
    described = json.loads(view.row["experiment"] or "{}")
    everyone = range(view.row["agents"] or 0)
    topology = topology_of(described.get("topology"))
    if isinstance(topology, Complete) or not _with_neighbours(described):
        return lambda rank, step: everyone
    if topology is not None:
        return topology.in_neighbors
    known = _senders(graph(view))  # of a class of the user's own: those of all rounds
    return lambda rank, step: known.get(rank, everyone)


def _senders(drawn: Mapping[str, Any]) -> dict[int, list[int]]:
    """The ranks that send to each, by the receiver's rank."""
    found: dict[int, list[int]] = defaultdict(list)
    for sender, receiver in drawn.get("edges") or ():
        found[receiver].append(sender)
        if not drawn["directed"]:
            found[sender].append(receiver)
    return found


def topology_of(described: object) -> Topology | None:
    """The topology, if it is one of d5ray's own that plain data make; None otherwise."""
    if not isinstance(described, Mapping):
        return None
    kind = _own_class(described.get("class"))
    if kind is None or not issubclass(kind, Topology):
        return None
    try:
        given = {each.name for each in fields(kind) if each.init}  # type: ignore[arg-type]
        return kind(**{name: _argument(value) for name, value in described.items() if name in given})
    except (TypeError, ValueError, D5Error):  # made by another version, or of parts that are not plain
        return None


def _argument(value: Any) -> Any:
    if isinstance(value, Mapping):
        raise TypeError("not plain data")
    return tuple(value) if isinstance(value, list) else value


def _with_neighbours(described: Mapping[str, Any]) -> bool:
    """True if the optimizer asks something of the topology; one of the user's own is taken to."""
    told = described.get("distributed")
    kind = _own_class(told.get("class") if isinstance(told, Mapping) else told)
    return kind is None or not issubclass(kind, DistributedOptimizer) or bool(kind.needs)


def _own_class(name: object) -> type | None:
    """The class of d5ray with this full name."""
    if not isinstance(name, str) or not name.startswith("d5ray.distributed."):
        return None
    module, attribute = described_now(name)
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ImportError:
        return None
    return found if isinstance(found, type) else None
