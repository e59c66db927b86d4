"""The job that times update rules beside torch.optim's, and the contender: one network in a fresh process"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from benchmarks.interleaved_timing import InterleavedTiming
from benchmarks.update_speed.baselines import RulePair
from benchmarks.update_speed.metrics import RULE_STEP_TIME, RULE_TIME
from d5ray.checks import check_count
from d5ray.errors import ConfigurationError
from d5ray.kits.laboratory.comparisons import processes
from d5ray.kits.laboratory.comparisons.contenders import Contender, RankSeries

HASHED_AS = "d5ray.recipes.rule_speeds"  # where the first runs knew it

PROCESS_SECONDS = 1800.0  # for one process to time all rules


@final
@dataclass(frozen=True, kw_only=True)
class RuleSpeeds(InterleavedTiming):
    """Networks on which rules are timed. Wrong values raise `ConfigurationError`.

    rules      each beside its class of torch.optim, no two of one class
    batch_size of a training step
    seconds    about so long every rule's updates, and its steps, are timed in each process
    """

    rules: tuple[RulePair, ...]
    batch_size: int = 32
    seconds: float = 1.0

    def check(self) -> None:
        super().check()
        check_count("batch_size", self.batch_size, 1)
        known = isinstance(self.rules, tuple) and all(isinstance(each, RulePair) for each in self.rules)
        names = [each.name for each in self.rules] if known else []
        if not names or len(set(names)) < len(names):
            raise ConfigurationError(
                f"rules is {self.rules!r}: it must be a tuple such as "
                "(RulePair(SGD(0.1), 'SGD', {'lr': 0.1}),), with no class of rule twice"
            )


@final
@dataclass(frozen=True)
class OnNetwork(Contender[RuleSpeeds]):
    """One process of its own that times all rules on a network."""

    network: str
    sample_shape: tuple[int, ...]
    processes: int = field(default=1, init=False)

    @property
    def name(self) -> str:
        return f"{self.network}[1]"

    def measure(self, job: RuleSpeeds, folder: Path) -> list[RankSeries]:
        from benchmarks.update_speed.worker import STEP, RuleTimes  # noqa: PLC0415 - imports torch

        work = RuleTimes(
            model=self.network,
            sample_shape=self.sample_shape,
            pairs=job.rules,
            batch_size=job.batch_size,
            threads=job.threads,
            seconds=job.seconds,
            seed=job.seed,
        )
        (found,) = processes.measured(work, folder, 1, PROCESS_SECONDS)
        return [
            RankSeries.of(times, RULE_STEP_TIME if what == STEP else RULE_TIME, f"{rule} {side}", warmup=1)
            for (what, rule, side), times in found.items()
        ]
