"""A campaign: an undisturbed run of a recipe, then so many under faults, one after the other, to a verdict"""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from d5ray.checks import check_count
from d5ray.distributed.faults.plan import Faults
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.failures.exit_codes import FAIL, INCONCLUSIVE, PASS
from d5ray.kits.laboratory.chaos.judging import Judged, judged
from d5ray.kits.laboratory.chaos.processes import ended
from d5ray.kits.laboratory.chaos.trials import (
    STOP_SECONDS,
    STUCK_SECONDS,
    USUAL,
    USUAL_KINDS,
    Trial,
    check_drawn,
    drawn,
)
from d5ray.metrics.record.folders import home, make_folder, runs_root
from d5ray.metrics.record.reader import Run
from d5ray.recipes.engine import library
from d5ray.recipes.engine.recipe import Recipe

COUNTED: Final = ("trials", "happened", "missed", "completed", "right", "wrong")
MOST_TRIALS: Final = 10_000
START_SECONDS: Final = 60.0  # that a trial may take beyond an undisturbed run, and what its faults take
FIRST_SECONDS: Final = 600.0  # for the undisturbed run


@final
@dataclass(frozen=True)
class Campaign:
    """The trials of a campaign and what came of them. seconds: of the undisturbed run."""

    recipe: str
    seed: int
    seconds: float
    trials: tuple[Judged, ...]
    wanted: int  # trials

    @property
    def verdict(self) -> str:
        """FAIL where a trial is wrong; INCONCLUSIVE where trials are missing, or no fault happened."""
        if any(trial.wrong for trial in self.trials):
            return FAIL
        if len(self.trials) < self.wanted or not any(trial.happened for trial in self.trials):
            return INCONCLUSIVE
        return PASS

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each kind and victim, with how many trials were what.

        happened, missed: the fault. completed: the run. right, wrong: it ended as promised, or not.
        """
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for each in self.trials:
            key = each.trial.kind, each.trial.victim
            row = found.setdefault(
                key,
                {"kind": key[0], "victim": key[1]} | dict.fromkeys(COUNTED, 0),
            )
            row["trials"] += 1
            row["happened"] += each.happened
            row["missed"] += each.missed
            row["completed"] += each.completed
            row["wrong" if each.wrong else "right"] += 1
        return [found[key] for key in sorted(found)]

    def as_data(self) -> dict[str, Any]:
        """The campaign as JSON has it."""
        return {
            "recipe": self.recipe,
            "seed": self.seed,
            "verdict": self.verdict,
            "rows": self.rows,
            "wrong": [
                {
                    "trial": each.trial.number,
                    "wrong": list(each.wrong),
                    "command": each.trial.command(self.recipe),
                }
                for each in self.trials
                if each.wrong
            ],
        }


def campaign(
    recipe: str,
    *,
    trials: int = 100,
    seed: int = 0,
    victims: Sequence[str] = USUAL,
    kinds: Sequence[str] = USUAL_KINDS,
    settings: Mapping[str, Any] | None = None,
    address: str | None = None,
) -> Campaign:
    """Run a recipe so often under drawn faults, and judge each run. Ctrl-C ends it, and leaves it undecided.

    settings: for keys that are not FIXED. address: of a Ray cluster of this machine that the trials share and
    nobody else uses meanwhile; without one each has an embedded Ray, as those have in any case that end Ray.
    Raises `ConfigurationError` where the undisturbed
    run does not complete, or the disk of the runs is not to be filled.
    """
    check_count("trials", trials, 1, MOST_TRIALS)
    if not Path("/proc").is_dir():
        raise ConfigurationError(
            "a campaign of faults finds the processes of a run in /proc, which Linux alone has, and this is "
            f"{sys.platform}: run it on Linux, or plan faults with --faults"
        )
    check_drawn(seed, victims, kinds)
    _check_fills(kinds)
    experiment = _experiment(recipe, settings or {})
    first = Trial(-1, "", "", Faults(), "stop", settings or {})
    alone, steps, seconds = _undisturbed(first, recipe, address)
    planned = drawn(
        experiment,
        trials,
        seed,
        steps=steps,
        seconds=seconds,
        victims=victims,
        kinds=kinds,
        settings=settings,
    )
    bound = 3.0 * alone + START_SECONDS + STOP_SECONDS + 2 * STUCK_SECONDS + experiment.timeout_seconds
    done: list[Judged] = []
    try:
        for trial in planned:
            with _home() as folder:
                process = ended([*trial.arguments(recipe, address), "--json"], Path(folder), bound, address)
                done.append(judged(trial, process, experiment, Path(folder), bound))
    except KeyboardInterrupt:
        pass
    return Campaign(recipe, seed, alone, tuple(done), trials)


def _check_fills(kinds: Sequence[str]) -> None:
    """Raise `ConfigurationError` where a trial would fill up what others need."""
    from d5ray.actors.group.fills import check_disk, check_shared_memory  # noqa: PLC0415 - for few

    if "fill_disk" in kinds:
        check_disk(Faults().fill_disk(at_seconds=0), runs_root())
    if "fill_shared_memory" in kinds:
        check_shared_memory(Faults().fill_shared_memory(at_seconds=0), embedded=True)


def _home() -> "tempfile.TemporaryDirectory[str]":
    """A home for one trial, on the disk of the user's own runs."""
    make_folder(home())
    return tempfile.TemporaryDirectory(prefix="d5ray-chaos-", dir=home())


def _experiment(recipe: str, settings: Mapping[str, Any]) -> Experiment:
    module = library.load(recipe)
    name = library.name_of(Path(recipe))
    made = Recipe.of(module.FIXED, module.MUTABLE, module.METRICS, name=name, overrides=settings).made()
    if not isinstance(made, Experiment):
        raise ConfigurationError(
            f"the recipe {name} is no training of agents: give one that is, such as digits_lenet"
        )
    return made


def _undisturbed(trial: Trial, recipe: str, address: str | None) -> tuple[float, int, float]:
    """Seconds of a run without faults, its steps, and the seconds of its training."""
    with _home() as folder:
        process = ended([*trial.arguments(recipe, address), "--json"], Path(folder), FIRST_SECONDS, address)
        folders = list(Path(folder, "runs").glob("*"))
        if process.code not in (0, 1, 2) or not folders or process.left:
            why = process.err.strip().rpartition("\n")[2] or f"it left {process.left}"
            raise ConfigurationError(f"without faults the recipe {recipe} does not complete: {why}")
        run = Run(folders[0])
        samples = run.tables()["samples"].select(["metric", "t_mono"]).to_pandas()
        ends = samples[samples["metric"] == "step_time"]["t_mono"]
        return process.seconds, int(run.row["steps"]), float(ends.max() - ends.min()) * 1e-9
