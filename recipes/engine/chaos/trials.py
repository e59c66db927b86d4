"""Trials of a campaign: who is hit, by what and when, drawn from a seed"""

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

VICTIMS: Final = (*NUMBERED, *ALONE)
USUAL: Final = ("agent", "server", "aggregator", "driver")
USUAL_KINDS: Final = SIGNALS
FILL_DISK: Final = "fill_disk"
KINDS: Final = (*SIGNALS, FILL_DISK)
DISK: Final = "disk"  # the victim of `fill_disk`
POLICIES: Final = ("stop", "continue", "restart")
STOP_SECONDS: Final = 2.0  # of a stop that ends
FULL_SECONDS: Final = 1.0  # of a full disk that has room again
STUCK_SECONDS: Final = 10.0  # after which one that does not end is a death
AT_STEP, AT_SECONDS, BEFORE = "step", "seconds", "start"
MOMENTS: Final = ("collective", "evaluation", "recovery", "closing")


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
        where = [] if address is None or self.victim in ("raylet", "gcs", "head") else ["--address", address]
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
    """A number of trials; each pair of a victim and a kind comes as often as the others, the disk likewise.

    steps, seconds: of an undisturbed training. Victims that the experiment does not have are left out.
    """
    check_drawn(seed, victims, kinds)
    servers = 0 if experiment.resolved_servers is None else experiment.resolved_servers.servers.shards
    there = [victim for victim in victims if victim != "server" or servers]
    pairs = [(victim, kind) for victim in there for kind in kinds if kind != FILL_DISK]
    pairs += [(DISK, FILL_DISK)] * (FILL_DISK in kinds)
    if not pairs:
        raise ConfigurationError(f"the experiment has none of the victims {', '.join(victims)}: name others")
    rng = np.random.default_rng([seed, 0xC4A05])
    settings = dict(settings or {})
    policies = [settings.pop("on_failure")] if "on_failure" in settings else _policies(experiment)
    found: list[Trial] = []
    while len(found) < trials:
        victim, kind = pairs[len(found) % len(pairs)]
        policy = str(rng.choice(policies))
        plan = _plan(rng, victim, kind, experiment.agents or 1, servers, steps, seconds, policy)
        found.append(Trial(len(found), victim, kind, plan, policy, settings))
    return found


def _policies(experiment: Experiment) -> list[str]:
    """The policies that the experiment can have."""
    if experiment.mesh is not None:
        return [experiment.on_failure]
    return list(POLICIES)


def _plan(
    rng: np.random.Generator,
    victim: str,
    kind: str,
    agents: int,
    servers: int,
    steps: int,
    seconds: float,
    policy: str,
) -> Faults:
    if victim == DISK:
        full = FULL_SECONDS if rng.random() < 0.5 else None
        return Faults().fill_disk(at_seconds=round(float(rng.uniform(0.0, seconds)), 3), seconds=full)
    whom: dict[str, Any] = {}
    if victim in NUMBERED:
        whom[victim] = int(rng.integers(agents if victim == "agent" else servers))
    else:
        whom["victim"] = victim
    if kind == "stop" and (victim != "agent" or rng.random() < 0.5):
        whom["seconds"] = STOP_SECONDS
    instants = [AT_SECONDS, AT_SECONDS, BEFORE, "closing"]
    if victim == "agent":
        instants = [AT_STEP, AT_STEP, AT_SECONDS, BEFORE, "collective", "evaluation", "closing"]
    if policy != "stop" and agents > 1:
        instants.append("recovery")
    plan, instant = Faults(), str(rng.choice(instants))
    if instant == "recovery":
        first = int(rng.integers(agents))
        plan = plan.kill(agent=first, at_step=int(rng.integers(steps)))
    elif instant == AT_STEP:
        whom["at_step"] = int(rng.integers(steps))
    elif instant in (AT_SECONDS, BEFORE):
        whom["at_seconds"] = 0.0 if instant == BEFORE else round(float(rng.uniform(0.0, seconds)), 3)
    if instant in MOMENTS:
        whom["during"] = instant
    if instant == "collective":
        whom["at_step"] = int(rng.integers(steps))
    made: Faults = getattr(plan, kind)(**whom)
    return made
