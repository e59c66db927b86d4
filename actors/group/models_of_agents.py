"""The models that agents are asked for; importing this imports Ray"""

from collections.abc import Mapping
from typing import Any

from d5ray.actors.calls import CALL_SECONDS, get
from d5ray.metrics.record.model_state import ModelState


def asked(agents: Mapping[int, Any], of_servers: bool, seconds: float) -> dict[int, ModelState]:
    """The models of these actors by rank, also while they train; seconds: for a step to end."""
    calls = asking(agents, of_servers)
    return dict(zip(calls, get(list(calls.values()), seconds + CALL_SECONDS, "give its model"), strict=True))


def asking(agents: Mapping[int, Any], of_servers: bool) -> dict[int, Any]:
    """References to the models of these actors, by rank."""
    return {
        rank: agent.model_state.options(concurrency_group="model").remote(of_servers=of_servers)
        for rank, agent in agents.items()
    }
