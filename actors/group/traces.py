"""The traces that a group's agents keep, if their executors do"""

from typing import Any

from d5ray.actors.calls import CALL_SECONDS, get
from d5ray.actors.group.group import TrainingGroup
from d5ray.networks.executors.traces import Trace


def traces_of(group: TrainingGroup) -> dict[int, Trace]:
    """The trace of each agent, by rank; its executor is a `TracedExecutor`."""
    return _asked(group, _trace)


def warned_of(group: TrainingGroup) -> list[str]:
    """The operations of which the framework says on an agent that they are not deterministic.

    The agents' gradients are overwritten: to be asked last.
    """
    lines = [line for told in _asked(group, _warned).values() for line in told]
    return list(dict.fromkeys(lines))


def _asked(group: TrainingGroup, question: Any) -> dict[int, Any]:
    calls = [agent.__ray_call__.remote(question) for agent in group.agents]
    return dict(enumerate(get(calls, CALL_SECONDS, "tell what it computed")))


def _trace(agent: Any) -> Trace:
    trace: Trace = _traced(agent).trace
    return trace


def _warned(agent: Any) -> list[str]:
    warned: list[str] = _traced(agent).warned()
    return warned


def _traced(agent: Any) -> Any:
    executor = agent.executor
    while not hasattr(executor, "trace"):
        executor = executor._inner  # within one that is slow by plan, or accumulates
    return executor
