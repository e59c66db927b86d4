"""Wishes for a run that is going on: how many agents it may have"""

from collections.abc import Mapping
from typing import Any

from d5ray.checks import check_count
from d5ray.errors import ConfigurationError


def check_resize(experiment: Mapping[str, Any], agents: int, *, one_sided: bool = False) -> None:
    """Raise `ConfigurationError` unless an experiment, as `describe` gives it, can have that many agents."""
    if one_sided:
        raise ConfigurationError(
            "the agents of the run do not wait for each other's steps, so there is none that all reach "
            "together: take late=(Late(agent=3, seconds=60),) for agents that join later"
        )
    least = experiment.get("min_agents", 1)
    check_count("agents", agents, least, experiment["agents"])
    mesh = experiment.get("mesh") or {"replicas": experiment["agents"]}
    replica = experiment["agents"] // mesh["replicas"]
    if agents % replica:
        possible = range(-(-least // replica) * replica, experiment["agents"] + 1, replica)
        raise ConfigurationError(
            f"agents is {agents}, and a replica of the run's mesh is {replica} agents, which come and go "
            f"together: take one of {', '.join(map(str, possible))}"
        )
