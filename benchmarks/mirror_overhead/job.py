"""The contender that trains with and without the exporter in turn: agents whose exporter opens and closes"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.mirror_overhead.metrics import MIRROR_SHARE, TURN_TIME, WITH, WITHOUT
from benchmarks.step_times import StepTimes
from d5ray.metrics.definitions.catalogue import StepTime
from d5ray.recipes.engine.comparisons.contenders import Contender, RankSeries

HASHED_AS = "d5ray.recipes.mirrored_agents"  # where the first runs knew it

SIDES: Final = (WITH, WITHOUT)


@final
@dataclass(frozen=True)
class MirroredAgents(Contender[StepTimes]):
    """d5ray's agents, in turns of the job's steps, which must last longer than the second between two looks.

    turns: of each side, forwards, then backwards, and so on.
    """

    processes: int
    turns: int = 8

    @property
    def name(self) -> str:
        return f"d5ray[{self.processes}]"

    def missing(self) -> str:
        return ""

    def measure(self, job: StepTimes, folder: Path) -> list[RankSeries]:
        from d5ray.actors.calls import CALL_SECONDS, get  # noqa: PLC0415 - imports Ray
        from d5ray.actors.launch import launch  # noqa: PLC0415 - imports Ray

        experiment = replace(job.experiment(job.data, self.processes, "auto"), monitor_seconds=0)
        order = [side for turn in range(self.turns) for side in (SIDES if turn % 2 == 0 else SIDES[::-1])]
        spent = []
        with launch(experiment, quiet=True, root=folder) as group:
            group.train(job.warmup_steps, progress=False)
            for side in order:
                act = _open if side == WITH else _close
                get(
                    [agent.__ray_call__.remote(act) for agent in group.agents],
                    CALL_SECONDS,
                    "start or end its exporter",
                )
                group.train(job.steps, progress=False)
                asked = [agent.__ray_call__.remote(_spent) for agent in group.agents]
                spent.append(max(get(asked, CALL_SECONDS, "tell what its exporter took")))
            seconds = _of_turns(group.metrics(), job)
        of = {side: [at for at, name in enumerate(order) if name == side] for side in SIDES}
        times = {side: [seconds[at] for at in of[side]] for side in SIDES}
        share = sum(spent[at] for at in of[WITH]) / (sum(times[WITH]) * job.steps)
        return [
            *(RankSeries(TURN_TIME, "s", 0, times[side], phase="run", at=side) for side in SIDES),
            RankSeries(MIRROR_SHARE, "1", 0, [share], phase="run"),
        ]


def _of_turns(samples: pa.Table, job: StepTimes) -> list[float]:
    """The mean step of every turn, of the slowest rank."""
    rows = samples.filter(pc.equal(samples["metric"], StepTime.name))
    slowest = rows.group_by("step").aggregate([("value", "max")]).sort_by("step")["value_max"].to_numpy()
    means: list[float] = np.mean(slowest[job.warmup_steps :].reshape(-1, job.steps), axis=1).tolist()
    return means


def _open(agent: Any) -> None:
    agent.exporter.start(agent.readings)


def _close(agent: Any) -> None:
    agent.exporter.close()


def _spent(agent: Any) -> Any:
    return agent.exporter.spent_seconds
