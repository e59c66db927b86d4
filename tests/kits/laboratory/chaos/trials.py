"""Trials of a campaign, drawn from a seed: who is hit, by what and when, maybe by another fault before it"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import d5ray as d5
from d5ray.errors import ConfigurationError

SIGNALS = ("kill", "stop", "terminate")
FILLS = {"fill_disk": "disk", "fill_shared_memory": "shared memory"}  # victims, by kinds
USUAL = ("agent", "server", "aggregator", "driver")
OF_RAY = ("raylet", "gcs", "head")
VICTIMS = (*USUAL, *OF_RAY)
OWN_RAY = (*OF_RAY, FILLS["fill_shared_memory"])  # victims in no Ray that is shared
STOP_SECONDS = 2.0  # of a stop that ends
STUCK_SECONDS = 10.0  # after which one that does not end is a death
FULL_SECONDS = 1.0  # of a victim that is full and has room again
SOON_SECONDS = 1.0  # in which a fault follows another one
AT_STEP, AT_SECONDS, BEFORE, SOON = "step", "seconds", "start", "soon"
LATER = ("collective", "checkpoint")  # moments that come often: from a drawn step on
FIRST = ("agent", "server", "aggregator")  # who may die shortly before another


@dataclass(frozen=True)
class Trial:
    """One run of a recipe under a plan and a policy; a plan may have another fault before its last one."""

    faults: d5.Faults
    policy: str

    @property
    def about(self) -> d5.faults.Fault:
        """The fault that the trial is about: the last of its plan."""
        return self.faults.planned[-1]

    @property
    def victim(self) -> str:
        """Who is hit by the fault that it is about."""
        return self.about.victim or FILLS[self.about.kind]

    def arguments(self, recipe: str, address: str | None) -> list[str]:
        """The arguments of `d5ray` that do it."""
        where = [] if address is None or self.victim in OWN_RAY else ["--address", address]
        sets = ["--set", f"on_failure={self.policy}", "--set", f"stuck_seconds={STUCK_SECONDS}"]
        return ["run", recipe, *sets, *where, "--faults", repr(self.faults), "--json"]


def drawn(
    experiment: d5.Experiment, trials: int, seed: int, *,
    steps: int, seconds: float, victims: Sequence[str] = USUAL, kinds: Sequence[str] = SIGNALS,
) -> list[Trial]:  # fmt: skip
    """A number of trials; each pair of a victim and a kind comes as often as the others, what is full too.

    steps, seconds: of an undisturbed training. Victims that the experiment does not have are left out.
    """
    rng = np.random.default_rng([seed, 0xC4A05])
    resolved, events = experiment.resolved_servers, experiment.events
    assert isinstance(events, tuple)
    checkpoints = any(isinstance(event, d5.events.Checkpoint) for event in events)
    servers = 0 if resolved is None else resolved.servers.shards
    plans = Plans(rng, experiment.agents or 1, servers, checkpoints, steps, seconds)
    there = [victim for victim in victims if victim != "server" or servers]
    pairs = [(victim, kind) for victim in there for kind in kinds if kind not in FILLS]
    pairs += [(FILLS[kind], kind) for kind in kinds if kind in FILLS]
    policies = possible(experiment)
    found: list[Trial] = []
    while len(found) < trials:
        policy = str(rng.choice(policies))
        found.append(Trial(plans.draw(*pairs[len(found) % len(pairs)], policy), policy))
    return found


def possible(experiment: d5.Experiment) -> list[str]:
    """The policies that the experiment can have; a mesh, whose replicas count, keeps its own."""
    if experiment.mesh is not None:
        return [experiment.faults.on_failure]
    return [policy for policy in experiment.faults.policies if _can_have(experiment, policy)]


def _can_have(experiment: d5.Experiment, policy: str) -> bool:
    try:
        experiment.with_values(on_failure=policy)
    except ConfigurationError:
        return False
    return True


@dataclass(frozen=True)
class Plans:
    """Draws plans for an experiment. steps, seconds: of an undisturbed training."""

    rng: np.random.Generator
    agents: int
    servers: int
    checkpoints: bool
    steps: int
    seconds: float

    def draw(self, victim: str, kind: str, policy: str) -> d5.Faults:
        """A plan whose last fault is of this kind and victim."""
        if kind in FILLS:
            lasts = FULL_SECONDS if self.rng.random() < 0.5 else None
            return self._with(d5.Faults(), kind, at_seconds=self._second(), seconds=lasts)
        whom = self._whom(victim)
        if kind == "stop" and (victim != "agent" or self.rng.random() < 0.5):
            whom["seconds"] = STOP_SECONDS
        plan, instant = d5.Faults(), str(self.rng.choice(self._instants(victim, policy)))
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
        if instant not in (AT_STEP, AT_SECONDS, BEFORE, SOON):
            whom["during"] = instant
        return self._with(plan, kind, **whom)

    def _instants(self, victim: str, policy: str) -> list[str]:
        """The instants of which one is drawn; what is there more than once comes more often."""
        found = [AT_SECONDS, AT_SECONDS, BEFORE, "closing", SOON]
        if victim == "agent":
            found += [AT_STEP, AT_STEP, "collective", "evaluation"]
            found += ["checkpoint"] * self.checkpoints
        if policy != "stop" and self.agents > 1:
            found.append("recovery")
        return found

    def _first(self, policy: str) -> str:
        """Who dies before another: without a policy to go on nobody whose death ends the run."""
        there = [each for each in FIRST if each != "server" or self.servers]
        return str(self.rng.choice(there)) if policy != "stop" else "aggregator"

    def _whom(self, victim: str) -> dict[str, Any]:
        if victim not in ("agent", "server"):
            return {"victim": victim}
        return {victim: int(self.rng.integers(self.agents if victim == "agent" else self.servers))}

    def _step(self) -> int:
        return int(self.rng.integers(self.steps))

    def _second(self) -> float:
        return round(float(self.rng.uniform(0.0, self.seconds)), 3)

    @staticmethod
    def _with(plan: d5.Faults, kind: str, **whom: Any) -> d5.Faults:
        made: d5.Faults = getattr(plan, kind)(**whom)
        return made
