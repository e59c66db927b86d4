"""Observer: what an executor's watched code calls, and what hands it to the events"""

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.networks.events.event import GraphEvent, NetworkMoment, OperatorMoment, Values
from d5ray.operators.nodes.node import Node

Allocated = Callable[[], int | None]


@final
class Observer:
    """The hooks of some events that are overridden; each is called in the order of the events.

    allocated: the bytes that are allocated now. synchronize: waits for what the device computes.
    """

    def __init__(
        self,
        events: Sequence[GraphEvent],
        allocated: Allocated,
        synchronize: Callable[[], None] = lambda: None,
    ) -> None:
        self._before_network = _overridden(events, "before_network")
        self._after_network = _overridden(events, "after_network")
        self._before_operator = _overridden(events, "before_operator")
        self._after_operator = _overridden(events, "after_operator")
        self._allocated, self._synchronize = allocated, synchronize
        self.watches_network = bool(self._before_network or self._after_network)
        self.watches_operators = bool(self._before_operator or self._after_operator)
        self._network_began = self._operator_began = 0

    def before_network(self, training: bool, inputs: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Call the hooks for the begin of a pass, and start its clock."""
        if self._before_network:
            moment = NetworkMoment(training, None, self._allocated(), inputs)
            for hook in self._before_network:
                hook(moment)
        self._network_began = perf_counter_ns()

    def after_network(self, training: bool, outputs: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Stop the clock of a pass, and call the hooks for its end with the nanoseconds it took."""
        elapsed = perf_counter_ns() - self._network_began
        if self._after_network:
            moment = NetworkMoment(training, elapsed, self._allocated(), outputs)
            for hook in self._after_network:
                hook(moment)

    def before_operator(self, node: Node, index: int, direction: str, inputs: Values) -> None:
        """Call the hooks for the begin of an operator, and start its clock, the device idle."""
        self._synchronize()
        if self._before_operator:
            moment = OperatorMoment(node, index, direction, None, self._allocated(), inputs)
            for hook in self._before_operator:
                hook(moment)
        self._operator_began = perf_counter_ns()

    def after_operator(self, node: Node, index: int, direction: str, inputs: Values, outputs: Values) -> None:
        """Wait for the device, stop the operator's clock, and call the hooks for its end."""
        self._synchronize()
        elapsed = perf_counter_ns() - self._operator_began
        if self._after_operator:
            moment = OperatorMoment(node, index, direction, elapsed, self._allocated(), inputs, outputs)
            for hook in self._after_operator:
                hook(moment)


def checked(events: GraphEvent | Sequence[GraphEvent]) -> tuple[GraphEvent, ...]:
    """The events as a tuple. Raises `ConfigurationError` for what is none."""
    listed = (events,) if isinstance(events, GraphEvent) else tuple(events)
    for event in listed:
        if not isinstance(event, GraphEvent):
            raise ConfigurationError(
                f"events has {event!r} ({type(event).__name__}): an executor's events are GraphEvents, such "
                "as OperatorTimes()"
            )
    return listed


def _overridden(events: Sequence[GraphEvent], name: str) -> tuple[Callable[[Any], None], ...]:
    return tuple(
        getattr(event, name)
        for event in events
        if getattr(type(event), name) is not getattr(GraphEvent, name)
    )
