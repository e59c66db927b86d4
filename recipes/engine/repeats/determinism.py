"""The test that a recipe's training repeats to the last bit: the same steps twice, in fresh processes

Compared are the bits of the loss of every step and agent, and the agents' parameters at the end. Where they
differ, both are tried again with a trace of all that is computed, which names the operation that parted them.
"""

import contextlib
import hashlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import final

import pyarrow as pa
import pyarrow.compute as pc

from d5ray.actors.group.group import TrainingGroup
from d5ray.actors.group.run_row import RunOrigin
from d5ray.actors.group.traces import traces_of, warned_of
from d5ray.actors.launch import launch
from d5ray.checks import check_count
from d5ray.display.console import err
from d5ray.errors import ConfigurationError, first_line
from d5ray.experiment import Experiment
from d5ray.metrics.judge.criteria import Verdict
from d5ray.networks.executors.traces import Parting, Trace, first_parting
from d5ray.recipes.engine.recipe import INCONCLUSIVE, Recipe, Result
from d5ray.recipes.engine.repeats.series_folder import KeptSeries

METRIC = "deterministic_steps"
Losses = Mapping[tuple[int, int], float]  # by (step, rank)
Hashes = Mapping[int, Mapping[str, str]]  # of every parameter tensor, by rank and name


@final
@dataclass(frozen=True)
class FirstDifference:
    """The first step that differs.

    Without a loss it is the last step's update: all losses agree, and the parameters after it do not.
    """

    step: int
    agent: int
    losses: tuple[float, float] | None
    parameters: tuple[str, ...]  # tensors of this agent that differ at the end

    def __str__(self) -> str:
        who = f"of TrainingAgent(rank={self.agent})"
        if self.losses is None:
            return f"the losses agree, but after step {self.step} the parameters {who} differ"
        return f"at step {self.step} the loss {who} is {self.losses[0]!r}, then {self.losses[1]!r}"


def check(recipe: Recipe, steps: int, *, address: str | None, quiet: bool) -> Result:
    """Train this many steps twice: PASS if every bit agrees, FAIL with the first step that differs and why.

    Raises `ConfigurationError` where it does not apply.
    """
    check_count("--check-determinism", steps, 1)
    experiment = recipe.made()
    _refuse(recipe, experiment)
    kept = KeptSeries(recipe, "determinism", [experiment.seed] * 2)
    trial = _Trial(kept, steps, address, quiet)
    try:
        first, second = (trial.run(experiment, f"try {number} of 2") for number in (1, 2))
        difference = first_difference(first, second, steps)
        found, warned = (None, []) if difference is None else trial.search(experiment)
    except BaseException as error:
        if not kept.found():
            kept.forget()
            raise
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        result = kept.close(status, first_line(error), ())
        if status == "failed":
            raise
        return result
    detail = {
        "steps": steps,
        "difference": None if difference is None else asdict(difference),
        "found": None if found is None else asdict(found),
        "warnings": warned,
    }
    return kept.close("completed", "", (_verdict(steps, difference, _told(difference, found)),), detail)


def first_difference(first: "Tried", second: "Tried", steps: int) -> FirstDifference | None:
    """The first thing in which two tries differ; None if they agree to the last bit."""
    at_end = {
        rank: tuple(name for name, digest in named.items() if second.hashes.get(rank, {}).get(name) != digest)
        for rank, named in first.hashes.items()
    }
    for step, rank in sorted(first.losses.keys() | second.losses.keys()):
        one, other = (tried.losses.get((step, rank)) for tried in (first, second))
        if one is None or other is None:
            return FirstDifference(step, rank, None, at_end.get(rank, ()))
        if struct.pack("<d", one) != struct.pack("<d", other):
            return FirstDifference(step, rank, (one, other), at_end.get(rank, ()))
    differing = [rank for rank, names in at_end.items() if names]
    return FirstDifference(steps - 1, differing[0], None, at_end[differing[0]]) if differing else None


@final
@dataclass(frozen=True)
class Tried:
    """The result of one try."""

    losses: Losses
    hashes: Hashes


@final
class _Trial:
    """The tries of one check."""

    def __init__(self, kept: KeptSeries, steps: int, address: str | None, quiet: bool) -> None:
        self._kept, self._steps, self._address, self._quiet = kept, steps, address, quiet

    def run(self, experiment: Experiment, title: str) -> Tried:
        """One try in fresh processes."""
        with self._trained(experiment, title) as group:
            return Tried(losses_of(group.tables()["samples"]), _hashes(group))

    def search(self, experiment: Experiment) -> tuple[Parting | None, list[str]]:
        """The first thing that parts two tries, and what the framework itself says of its operations."""
        from d5ray.frameworks.torch.tracing import Traced  # noqa: PLC0415 - imports torch

        traced = experiment.with_values(executor=Traced(experiment.make_executor))
        traces: list[dict[int, Trace]] = []
        warned: list[str] = []
        for number in (1, 2):
            with self._trained(traced, f"with a trace, {number} of 2") as group:
                traces.append(traces_of(group))
                if number == 2:
                    warned = warned_of(group)
        return first_parting(*traces), warned

    @contextlib.contextmanager
    def _trained(self, experiment: Experiment, title: str) -> Iterator[TrainingGroup]:
        recipe = self._kept.recipe
        origin = RunOrigin(**recipe.described(), series=self._kept.series.name)
        if not self._quiet:
            err().print(title, style="bold")
        with launch(experiment, address=self._address, origin=origin, quiet=self._quiet) as group:
            outcome = group.train(steps=self._steps, progress=not self._quiet)
            yield group
        self._kept.add(
            Result(
                recipe, group.run_id, group.folder, INCONCLUSIVE, (), outcome.status, outcome.reason,
                group.startup_seconds,
            )
        )  # fmt: skip


def losses_of(samples: pa.Table) -> dict[tuple[int, int], float]:
    """The loss that each agent recorded at each step; of a step that was done again, the last."""
    rows = samples.filter(pc.and_(pc.equal(samples["metric"], "loss"), pc.is_valid(samples["value"])))
    rows = rows.sort_by([("attempt", "ascending"), ("seq", "ascending")])
    columns = (rows[name].to_pylist() for name in ("step", "rank", "value"))
    return {(step, rank): value for step, rank, value in zip(*columns, strict=True)}


def _hashes(group: TrainingGroup) -> Hashes:
    return {
        rank: {
            name: hashlib.sha256(array.tobytes()).hexdigest()
            for name, array in group.parameters(rank).items()
        }
        for rank in range(len(group.agents))
    }


def _refuse(recipe: Recipe, experiment: object) -> None:
    if not isinstance(experiment, Experiment):
        raise ConfigurationError(
            f"the recipe {recipe.name} runs a {type(experiment).__name__}, which is no training: there are "
            "no steps that could be repeated"
        )
    if experiment.distributed_optimizer.asynchronous:
        raise ConfigurationError(
            f"the agents of {experiment.distributed!r} do not wait for each other, so that no two runs "
            "are alike: --check-determinism does not apply. `d5ray replay RUN` does again what a run did and "
            "compares, and d5ray.simulate(...) repeats to the last bit"
        )


def _verdict(steps: int, difference: FirstDifference | None, reason: str) -> Verdict:
    agreed = steps if difference is None else difference.step
    return Verdict(
        run_id="",
        metric=METRIC,
        unit="1",
        relation=">=",
        target=float(steps),
        value=float(agreed),
        low=None,
        high=None,
        n=2,
        sample_unit="runs",
        verdict="PASS" if difference is None else "FAIL",
        reason=reason,
    )


def _told(difference: FirstDifference | None, found: Parting | None) -> str:
    if difference is None:
        return ""
    if found is None:
        return f"{difference}; traced, two more tries agreed: it comes and goes"
    who = f"TrainingAgent(rank={found.agent})"
    return f"{difference}; traced, {found.what} differs first, at step {found.step} of {who}: {found.meaning}"
