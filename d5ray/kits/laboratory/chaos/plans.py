"""Plans of trials: a fault at an instant, and maybe another one shortly before it, drawn from a seed"""

from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from d5ray.distributed.faults.fault import NUMBERED
from d5ray.distributed.faults.plan import Faults
from d5ray.experiment import Experiment
from d5ray.training.events.checkpoint import Checkpoint

FILLS: Final = {"fill_disk": "disk", "fill_shared_memory": "shared memory"}  # victims, by kinds
STOP_SECONDS: Final = 2.0  # of a stop that ends
FULL_SECONDS: Final = 1.0  # of a victim that is full and has room again
SOON_SECONDS: Final = 1.0  # in which a fault follows another one
AT_STEP, AT_SECONDS, BEFORE, SOON = "step", "seconds", "start", "soon"
OF_RUN: Final = ("recovery", "closing")
OF_AGENTS: Final = ("collective", "evaluation", "checkpoint")
LATER: Final = ("collective", "checkpoint")  # moments that come often: from a drawn step on
FIRST: Final = ("agent", "server", "aggregator")  # who may die shortly before another


@final
@dataclass(frozen=True)
class Plans:
    """Draws plans for an experiment. steps, seconds: of an undisturbed training."""

    rng: np.random.Generator
    experiment: Experiment
    steps: int
    seconds: float

    def draw(self, victim: str, kind: str, policy: str) -> Faults:
        """A plan whose last fault is of this kind and victim."""
        if kind in FILLS:
            return self._full(kind)
        whom = self._whom(victim)
        if kind == "stop" and (victim != "agent" or self.rng.random() < 0.5):
            whom["seconds"] = STOP_SECONDS
        plan, instant = Faults(), str(self.rng.choice(self._instants(victim, policy)))
        if instant == "recovery":
            plan = plan.kill(**self._whom("agent"), at_step=self._step())
        if instant == SOON:
            first = self._second()
            plan = plan.kill(**self._whom(self._first(policy)), at_seconds=first)
            whom["at_seconds"] = round(first + float(self.rng.uniform(0.0, SOON_SECONDS)), 3)
        if instant == AT_STEP or instant in LATER:
            whom["at_step"] = self._step()
        if instant in (AT_SECONDS, BEFORE):
            whom["at_seconds"] = 0.0 if instant == BEFORE else self._second()
        if instant in (*OF_RUN, *OF_AGENTS):
            whom["during"] = instant
        made: Faults = getattr(plan, kind)(**whom)
        return made

    @property
    def servers(self) -> int:
        """The parameter servers of the experiment."""
        resolved = self.experiment.resolved_servers
        return 0 if resolved is None else resolved.servers.shards

    def _full(self, kind: str) -> Faults:
        seconds = FULL_SECONDS if self.rng.random() < 0.5 else None
        made: Faults = getattr(Faults(), kind)(at_seconds=self._second(), seconds=seconds)
        return made

    def _instants(self, victim: str, policy: str) -> list[str]:
        """The instants of which one is drawn; what is there more than once comes more often."""
        found = [AT_SECONDS, AT_SECONDS, BEFORE, "closing", SOON]
        if victim == "agent":
            found += [AT_STEP, AT_STEP, "collective", "evaluation"]
            found += ["checkpoint"] * any(isinstance(event, Checkpoint) for event in self.events)
        if policy != "stop" and self._agents > 1:
            found.append("recovery")
        return found

    @property
    def events(self) -> tuple[Any, ...]:
        """The events of the experiment."""
        events = self.experiment.events
        return events if isinstance(events, tuple) else (events,)

    @property
    def _agents(self) -> int:
        return self.experiment.agents or 1

    def _first(self, policy: str) -> str:
        """Who dies before another: without a policy to go on nobody whose death ends the run."""
        there = [each for each in FIRST if each != "server" or self.servers]
        return str(self.rng.choice(there)) if policy != "stop" else "aggregator"

    def _whom(self, victim: str) -> dict[str, Any]:
        if victim not in NUMBERED:
            return {"victim": victim}
        return {victim: int(self.rng.integers(self._agents if victim == "agent" else self.servers))}

    def _step(self) -> int:
        return int(self.rng.integers(self.steps))

    def _second(self) -> float:
        return round(float(self.rng.uniform(0.0, self.seconds)), 3)
