"""A campaign: an undisturbed run of a recipe, then many under drawn faults, each of them judged"""

import json
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import d5ray as d5
from d5ray.recipes.engine.recipe import Recipe
from tests.kits.laboratory.chaos.judging import Judged, judged
from tests.kits.laboratory.chaos.processes import ended
from tests.kits.laboratory.chaos.trials import STOP_SECONDS, STUCK_SECONDS, drawn

START_SECONDS = 60.0  # that a trial may take beyond an undisturbed run, and what its faults take
FIRST_SECONDS = 600.0  # for the undisturbed run


def endure(
    folder: Path, text: str, trials: int, *, seed: int, address: str | None = None, **drawn_from: Any
) -> None:
    """Run the recipe of this text so often under drawn faults; fail unless each run ends as promised.

    address: of a Ray cluster of this machine that the trials share and nobody else uses meanwhile; without
    one each has an embedded Ray, as those have in any case that end Ray. drawn_from: victims and kinds.
    """
    recipe = folder / "small.py"
    recipe.write_text(text)
    parts: dict[str, Any] = {}
    exec(text, parts)
    experiment = Recipe.of(parts["FIXED"], parts["MUTABLE"], parts["METRICS"], name="small").made()
    assert isinstance(experiment, d5.Experiment)
    alone, steps, seconds = _undisturbed(recipe, address)
    bound = 3.0 * alone + START_SECONDS + STOP_SECONDS + 2 * STUCK_SECONDS + experiment.timeout_seconds
    done: list[Judged] = []
    for trial in drawn(experiment, trials, seed, steps=steps, seconds=seconds, **drawn_from):
        with tempfile.TemporaryDirectory(dir=folder) as home:
            process = ended(trial.arguments(str(recipe), address), Path(home), bound, address)
            done.append(judged(trial, process, experiment, Path(home), bound))
    check(done)


def check(trials: Sequence[Judged]) -> None:
    """Fail where a trial is wrong, or where no fault happened in any."""
    wrong = [
        {"trial": number, "wrong": each.wrong, "command": shlex.join(each.trial.arguments("small.py", None))}
        for number, each in enumerate(trials)
        if each.wrong
    ]
    assert not wrong, json.dumps(wrong, indent=1)
    assert any(each.happened for each in trials), "no fault happened"


def _undisturbed(recipe: Path, address: str | None) -> tuple[float, int, float]:
    """Seconds of a run without faults, its steps, and the seconds of its training."""
    arguments = ["run", str(recipe), "--set", "on_failure=stop", "--set", f"stuck_seconds={STUCK_SECONDS}"]
    arguments += ["--json"] if address is None else ["--json", "--address", address]
    with tempfile.TemporaryDirectory(dir=recipe.parent) as home:
        process = ended(arguments, Path(home), FIRST_SECONDS, address)
        assert process.code in (0, 1, 2) and not process.left, process
        run = d5.Run(next(Path(home, "runs").glob("*")))
        samples = run.tables()["samples"].select(["metric", "t_mono"]).to_pandas()
        ends = samples[samples["metric"] == "step_time"]["t_mono"]
        return process.seconds, int(run.row["steps"]), float(ends.max() - ends.min()) * 1e-9
