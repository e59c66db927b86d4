"""Resize: change the number of agents of a running run, at a step that all reach together"""

from typing import Any

from d5ray.actors.calls import CALL_SECONDS, get
from d5ray.actors.group.training import TrainingRun
from d5ray.actors.metrics.running import CONTROL, running
from d5ray.checks import check_address, check_count, check_kind


def resize(run: TrainingRun | str = "last", *, agents: int, address: str | None = None) -> None:
    """Change the number of agents of a run, to a number from its `min_agents` to its experiment's `agents`.

    run: the result of `launch` or `simulate`, or the name, or its beginning, of a running run in a Ray
    cluster. Agents leave or join a little later, at a step that all reach together; newcomers start while
    the others train. `keep_batch` and `scale_rate` determine the batch and the learning rate afterwards;
    every sample of an epoch is drawn once. An event `agents_changed` records the change.

    address: of the cluster, as for `d5ray.running`. Raises `ConfigurationError` for an impossible number,
    such as one that is not a multiple of a mesh's stages × parts, and for asynchronous optimizers.
    """
    check_kind("run", run, TrainingRun | str, "what launch or simulate gave, or the name of a run")
    check_count("agents", agents, 1)
    check_address(address)
    if isinstance(run, TrainingRun):
        run.resize(agents)
        return
    aggregator: Any = running(run, address).aggregator
    call = aggregator.want.options(concurrency_group=CONTROL).remote(agents)
    get([call], CALL_SECONDS, "take the number of agents")
