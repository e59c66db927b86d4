"""Resize: let a run that is going on have fewer agents, or more again, from a step that all reach together"""

from typing import Any

from d5ray.actors.calls import CALL_SECONDS, get
from d5ray.actors.group.training import TrainingRun
from d5ray.actors.metrics.running import CONTROL, running
from d5ray.checks import check_address, check_count, check_kind


def resize(run: TrainingRun | str = "last", *, agents: int, address: str | None = None) -> None:
    """Let a run have this number of agents, from its `min_agents` to its experiment's `agents`.

    run: what `launch` or `simulate` gave, or the name of a run that is going on in a Ray cluster, or its
    beginning. Agents leave or come at a step that all reach together, a little later; newcomers start while
    the others train. What a step takes then, and at which rate, say `keep_batch` and `scale_rate`; every
    sample of an epoch is drawn once. An event `agents_changed` tells when it was so.

    address: of the cluster, as for `d5ray.running`. Raises `ConfigurationError` for a number that the run
    cannot have, such as one that is no multiple of a mesh's stages × parts, and for a rule whose agents do
    not wait for each other.
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
