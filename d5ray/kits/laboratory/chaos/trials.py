"""Trials of a campaign, drawn from a seed: who is hit, by what and when, maybe by another fault before it"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np

from d5ray.checks import check_choice, check_count, check_names
from d5ray.distributed.faults.fault import ALONE, NUMBERED, SIGNALS, Fault
from d5ray.distributed.faults.plan import Faults
from d5ray.errors import ConfigurationError
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


VICTIMS: Final = (*NUMBERED, *ALONE)
USUAL: Final = ("agent", "server", "aggregator", "driver")
USUAL_KINDS: Final = SIGNALS
KINDS: Final = (*SIGNALS, *FILLS)
OWN_RAY: Final = ("raylet", "gcs", "head", FILLS["fill_shared_memory"])  # victims in no Ray that is shared
STUCK_SECONDS: Final = 10.0  # after which one that does not end is a death


@final
@dataclass(frozen=True)
class Trial:
    """One run of a recipe under a plan.

    victim, kind: of the fault that it is about; a plan may have another before it. settings: of the recipe.
    """

    number: int
    victim: str
    kind: str
    faults: Faults
    policy: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def about(self) -> Fault:
        """The fault that the trial is about: the last of its plan."""
        return self.faults.planned[-1]

    def arguments(self, recipe: str, address: str | None) -> list[str]:
        """The arguments of `d5ray` that do it."""
        given = {"on_failure": self.policy, "stuck_seconds": STUCK_SECONDS} | dict(self.settings)
        sets = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
        where = [] if address is None or self.victim in OWN_RAY else ["--address", address]
        return ["run", recipe, *sets, *where, *(["--faults", repr(self.faults)] if self.faults else [])]

    def command(self, recipe: str) -> str:
        """The command that repeats it."""
        return shlex.join(["d5ray", *self.arguments(recipe, None)])


def check_drawn(seed: int, victims: Sequence[str], kinds: Sequence[str]) -> None:
    """Raise `ConfigurationError` where trials cannot be drawn from these."""
    check_count("seed", seed, 0)
    for name, given, known in (("victims", victims, VICTIMS), ("kinds", kinds, KINDS)):
        for each in check_names(name, given, f"some of {', '.join(known)}"):
            check_choice(name, each, known)


def drawn(
    experiment: Experiment,
    trials: int,
    seed: int,
    *,
    steps: int,
    seconds: float,
    victims: Sequence[str] = USUAL,
    kinds: Sequence[str] = USUAL_KINDS,
    settings: Mapping[str, Any] | None = None,
) -> list[Trial]:
    """A number of trials; each pair of a victim and a kind comes as often as the others, what is full too.

    steps, seconds: of an undisturbed training. Victims that the experiment does not have are left out.
    """
    check_drawn(seed, victims, kinds)
    rng = np.random.default_rng([seed, 0xC4A05])
    plans = Plans(rng, experiment, steps, seconds)
    there = [victim for victim in victims if victim != "server" or plans.servers]
    pairs = [(victim, kind) for victim in there for kind in kinds if kind not in FILLS]
    pairs += [(FILLS[kind], kind) for kind in kinds if kind in FILLS]
    if not pairs:
        raise ConfigurationError(f"the experiment has none of the victims {', '.join(victims)}: name others")
    settings = dict(settings or {})
    policies = [settings.pop("on_failure")] if "on_failure" in settings else possible(experiment)
    found: list[Trial] = []
    while len(found) < trials:
        victim, kind = pairs[len(found) % len(pairs)]
        policy = str(rng.choice(policies))
        plan = plans.draw(victim, kind, policy)
        found.append(Trial(len(found), victim, kind, plan, policy, settings))
    return found


def possible(experiment: Experiment) -> list[str]:
    """The policies that the experiment can have; a mesh, whose replicas count, keeps its own."""
    if experiment.mesh is not None:
        return [experiment.faults.on_failure]
    return [policy for policy in experiment.faults.policies if _can_have(experiment, policy)]


def _can_have(experiment: Experiment, policy: str) -> bool:
    try:
        experiment.with_values(on_failure=policy)
    except ConfigurationError:
        return False
    return True
