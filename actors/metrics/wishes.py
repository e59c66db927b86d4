"""Wishes for a run that is going on: how many agents it may have"""

from collections.abc import Mapping
from typing import Any

from d5ray.checks import check_count
from d5ray.errors import ConfigurationError


def check_resize(experiment: Mapping[str, Any], agents: object, *, one_sided: bool = False) -> None:
    """Raise `ConfigurationError` unless an experiment, as `describe` gives it, can have that many agents."""
    if experiment.get("mesh") is not None:
        raise ConfigurationError("the run trains on a mesh, whose agents share a network: it keeps them all")
    if one_sided:
        raise ConfigurationError(
            "the agents of the run do not wait for each other's steps, so there is none that all reach "
            "together: take late=(Late(agent=3, seconds=60),) for agents that join later"
        )
    check_count("agents", agents, experiment.get("min_agents", 1), experiment["agents"])
