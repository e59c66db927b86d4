"""Claims about several seeds: fresh processes, one joint verdict, an end in the middle, tampering"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import d5ray as d5
from d5ray.actors.group.run_row import RunOrigin
from d5ray.errors import AgentError, ConfigurationError
from d5ray.experiment import Experiment
from d5ray.kits.laboratory.checking import series_checker
from d5ray.kits.laboratory.repeats import seeds
from d5ray.metrics.judge import run_series as kept
from d5ray.metrics.judge.comparison import compare, runs_named
from d5ray.metrics.judge.run_series import RunSeries
from d5ray.metrics.queries.sql import sql
from d5ray.metrics.record.reader import Run
from d5ray.metrics.statistics.intervals import median_interval
from d5ray.recipes.engine.recipe import Recipe, Result
from d5ray.recipes.engine.run_recipe import run_recipe
from d5ray.recipes.engine.runner import close
from tests.conftest import d5ray

pytestmark = pytest.mark.usefixtures("own_home")


@dataclass(frozen=True)
class Simulated:
    """A training on the virtual clock. With the seed `at` comes what `then` says."""

    hidden: int = 8
    learning_rate: float = 0.1
    seed: int = 3
    at: int = -1
    then: str = ""
    name: str = ""

    def run(self, recipe: Recipe, origin: RunOrigin, address: str | None, quiet: bool) -> Result:
        if self.seed == self.at and self.then == "interrupt":
            raise KeyboardInterrupt
        rate = 1e30 if self.seed == self.at and self.then == "nan" else self.learning_rate
        experiment = Experiment(
            model="mlp", model_kwargs={"hidden": (self.hidden,)}, dataset="digits",
            optimizer=d5.optimizers.SGD(rate), agents=2, batch_size=256, epochs=2, seed=self.seed,
            recording=d5.metrics.Recording(warmup_steps=0), name=self.name,
        )  # fmt: skip
        with d5.simulate(experiment, origin=origin) as group:
            group.train(progress=False)
            if self.seed == self.at and self.then == "fail":
                raise AgentError("agent 1 died")
            result = close(recipe, group)
        if self.seed == self.at and self.then == "stop":  # as a training does that Ctrl-C reaches
            return replace(result, status="interrupted", reason="interrupted by the user")
        return result


def recipe(metrics: list[Any] | None = None, **mutable: Any) -> Recipe:
    metrics = (
        [d5.metrics.TestAccuracy() >= 0.01, d5.metrics.StepTime() <= 1.0] if metrics is None else metrics
    )
    return Recipe.of({"job": Simulated, "hidden": 8}, mutable, metrics, name="simulated")


def ran(count: int, **mutable: Any) -> Result:
    return seeds.run(recipe(**mutable), count, address=None, quiet=True)


def only_series() -> RunSeries:
    (found,) = kept.list_series()
    return found


# -- one verdict ------------------------------------------------------------------------------------------


def test_six_seeds_are_judged_together() -> None:
    """The value is the median over the runs, the interval the exact one of six: their least and largest."""
    result = ran(6)
    accuracies = [d5.metrics.TestAccuracy().estimate(Run(one.folder).tables()).value for one in result.runs]
    assert [Run(one.folder).row["seed"] for one in result.runs] == [3, 4, 5, 6, 7, 8]
    verdict = result.verdicts[0]
    numbers = np.array(accuracies, dtype=np.float64)
    assert (verdict.low, verdict.high) == median_interval(numbers) == (numbers.min(), numbers.max())
    assert (verdict.value, verdict.n, verdict.sample_unit) == (np.median(numbers), 6, "runs")
    assert result.verdict == "PASS"
    assert (result.exit_code, bool(result), result.status) == (0, True, "completed")
    assert len({one.run_id for one in result.runs}) == 6
    assert len(set(accuracies)) > 1  # the seeds do matter


def test_a_series_is_found_again(own_home: Path) -> None:
    """By its name, the beginning of it, and its folder; its runs name it; SQL sees all their rows."""
    result = ran(2)
    found = [kept.find(text) for text in (result.run_id, "simulated-seeds", result.folder)]
    assert {one.name for one in found} == {result.run_id}
    assert isinstance(kept.find(result.runs[0].run_id), Run)
    series = only_series()
    assert [run.name for run in series.runs] == [one.run_id for one in result.runs]
    assert {run.row["series"] for run in series.runs} == {series.name}
    counted = sql(series, "select run_id, count(*) n from samples group by run_id order by run_id")
    expected = [(run.name, run.row["rows"]) for run in series.runs]
    assert sorted(zip(*counted.to_pydict().values(), strict=True)) == sorted(expected)
    joint = sql(series, f"select verdict from verdicts where run_id = '{series.name}'").to_pydict()
    assert joint == {"verdict": ["INCONCLUSIVE", "INCONCLUSIVE"]}


def test_run_recipe_takes_seeds() -> None:
    """The function that a recipe's file calls; fewer than six decide nothing, and say how many lack."""
    fixed = {"job": Simulated, "hidden": 4}
    result = run_recipe(
        fixed, {"seed": 10}, [d5.metrics.TestAccuracy() >= 0.0], name="own", seeds=2, quiet=True
    )
    assert [Run(one.folder).row["seed"] for one in result.runs] == [10, 11]
    assert "2 runs are too few, it needs 6: make 4 more" in result.verdicts[0].reason


@pytest.mark.full
def test_series_are_compared_run_by_run() -> None:
    """Six seeds of either learning rate: pairs of the same seed, the larger rate is the better one."""
    slow, fast = ran(6, learning_rate=1e-4), ran(6, learning_rate=0.5)
    found = compare(runs_named(slow.run_id), runs_named(fast.run_id))
    (accuracy,) = (each for each in found.differences if each.metric == "test_accuracy")
    assert (accuracy.verdict, accuracy.n) == ("better", 6)
    assert found.first == tuple(one.run_id for one in slow.runs)


# -- an end in the middle -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("then", "runs"), [("interrupt", 2), ("stop", 3)])
def test_an_interrupted_series_keeps_what_is_complete(then: str, runs: int) -> None:
    """Ctrl-C in the third of six, before or in its training: no other begins, and nothing is decided."""
    result = ran(6, at=5, then=then)
    assert (result.verdict, result.exit_code, result.status) == ("INCONCLUSIVE", 130, "interrupted")
    series = only_series()
    assert [run.row["status"] for run in series.runs] == ["completed"] * runs
    assert {v["reason"] for v in series.verdicts.to_pylist()} == {"the run was interrupted"}
    assert "only a completed one counts" in series_checker.violations(series)[0]


def test_an_interruption_before_anything_was_measured_leaves_nothing(own_home: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        ran(6, at=3, then="interrupt")
    assert not list((own_home / "series").iterdir())


def test_a_loss_that_becomes_nan_in_one_run_fails_the_series() -> None:
    """The seed is named; the others are run nevertheless."""
    result = ran(6, at=4, then="nan")
    assert (result.verdict, result.exit_code, result.status) == ("FAIL", 1, "nan_loss")
    assert result.reason.startswith("seed 4: the loss became")
    assert [one.status for one in result.runs].count("completed") == 5


def test_an_error_of_one_run_keeps_the_others() -> None:
    """It is raised again; the series lists the runs, the failed one too, and is open."""
    with pytest.raises(AgentError, match="agent 1 died"):
        ran(6, at=5, then="fail")
    series = only_series()
    assert (series.row["status"], series.row["verdict"]) == ("failed", "INCONCLUSIVE")
    assert [run.row["status"] for run in series.runs] == ["completed", "completed", "failed"]
    assert len(series.counted()) == 2


# -- what is refused ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unseeded:
    name: str = ""


@pytest.mark.parametrize(
    ("parts", "count", "words"),
    [
        (({"job": Simulated, "seed": 1}, {}), 2, "'seed' is FIXED in the recipe x: move it into MUTABLE"),
        (({"job": Unseeded}, {}), 2, "runs a Unseeded, which has no seed: leave --seeds out"),
        (({"job": Simulated}, {}), 0, "seeds is 0: it must be an integer of at least 1"),
        (({"job": Simulated}, {}), True, "seeds is True"),
    ],
)
def test_what_cannot_be_seeded_is_refused(parts: Any, count: Any, words: str, own_home: Path) -> None:
    """Before anything is run."""
    with pytest.raises(ConfigurationError, match=words):
        fixed, mutable = parts
        seeds.run(Recipe.of(fixed, mutable, [], name="x"), count, address=None, quiet=True)
    assert not list(own_home.iterdir())


# -- tampering ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a series of six that keeps the rules."""
    folder = tmp_path_factory.mktemp("honest")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("D5RAY_HOME", str(folder))
        ran(6)
    return folder


def changed(file: Path, **columns: Any) -> None:
    """Columns of a table of one row set to other values."""
    table = pq.read_table(file)
    for name, value in columns.items():
        place = table.schema.get_field_index(name)
        field = table.schema.field(place)
        table = table.set_column(place, field, pa.array([value] * table.num_rows, field.type))
    pq.write_table(table, file)


def quicker(series: RunSeries) -> None:
    changed(series.runs[0].folder / "samples.parquet", value=0.001)


def another_job(series: RunSeries) -> None:
    run = series.runs[1]
    job = json.loads(run.row["experiment"]) | {"batch_size": 1}
    changed(run.folder / "runs.parquet", experiment=json.dumps(job))


def hide_a_run(series: RunSeries) -> None:
    """The last one is left out of the list."""
    row = series.row
    changed(series.folder / "series.parquet", runs=row["runs"][:-1], seeds=row["seeds"][:-1])


def cut(series: RunSeries) -> None:
    file = series.folder / "series.parquet"
    file.write_bytes(file.read_bytes()[:-20])


def of_a_run(**values: Any) -> Callable[[RunSeries], None]:
    return lambda series: changed(series.runs[1].folder / "runs.parquet", **values)


def of_verdicts(**values: Any) -> Callable[[RunSeries], None]:
    return lambda series: changed(series.folder / "verdicts.parquet", **values)


TAMPERED: dict[str, tuple[Callable[[RunSeries], None], str]] = {
    "a run less": (lambda series: shutil.rmtree(series.runs[2].folder), "is not there"),
    "a run hidden": (hide_a_run, "no run may be left out"),
    "another verdict": (of_verdicts(verdict="FAIL"), "together: .*the verdict recorded is FAIL"),
    "another value": (of_verdicts(value=0.99), "together: .*the value recorded is 0.99"),
    "another seed": (of_a_run(seed=99), r"the seeds \[3, 99, 5, 6, 7, 8\], asked for were \[3, 4,"),
    "another job": (another_job, "differ in batch_size: only the seed may differ"),
    "another FIXED": (of_a_run(recipe_hash="0" * 64), "the hash of FIXED in the run .* is not that of the"),
    "a run of others": (of_a_run(series="another"), "is of the series another"),
    "quicker": (quicker, "the value recorded is"),
    "cut": (cut, "the series cannot be read"),
}


@pytest.mark.parametrize("change", [None, *TAMPERED])
def test_tampering_with_a_series_is_named(change: str | None, honest: Path, own_home: Path) -> None:
    """A copy as it was keeps the rules, and every change is named; the command looks at it where it lies."""
    shutil.copytree(honest, own_home, dirs_exist_ok=True)
    series = only_series()
    if change is None:
        assert series_checker.violations(series) == []
        done = d5ray("check", str(series.folder), env={"D5RAY_HOME": str(own_home / "elsewhere")})
        assert (done.code, "SUCCESS" in done.out) == (0, True)
        return
    tamper, words = TAMPERED[change]
    tamper(series)
    with pytest.raises(AssertionError, match=words):
        raise AssertionError("\n".join(series_checker.violations(RunSeries(series.folder))))


# -- the command --------------------------------------------------------------------------------------------

PROGRAM = """
import os, pathlib
import d5ray as d5
import torch

def model():
    with open(os.environ["SEEN"], "a") as seen:
        seen.write(f"{os.getpid()}\\n")
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))

FIXED = {"model": model, "dataset": "digits", "epochs": 1}
MUTABLE = {"optimizer": d5.optimizers.SGD, "optimizer_args": (0.1,), "agents": 1, "batch_size": 256}
METRICS = [d5.metrics.TestAccuracy() >= 0.0]
"""


@pytest.mark.slow
def test_the_command_runs_every_seed_in_a_fresh_process(tmp_path: Path) -> None:
    """Two seeds on one embedded Ray: two agents with process ids of their own, and the joint result."""
    file, seen = tmp_path / "own.py", tmp_path / "seen"
    file.write_text(PROGRAM)
    done = d5ray("run", str(file), "--seeds", "2", "--seed", "7", "--json", env={"SEEN": str(seen)})
    assert done.code == 2, done.err
    assert len(set(seen.read_text().split())) == 2
    found = done.json
    assert [run["seed"] for run in found["runs"]] == [7, 8] == found["seeds"]
    assert found["verdict"] == "INCONCLUSIVE"
    assert found["runs"][0]["parameters_sha256"] != found["runs"][1]["parameters_sha256"]
    facts = {row["key"]: row["value"] for row in only_series().runs[0].tables()["environment"].to_pylist()}
    assert facts["torch_threads"].startswith("1 within operations")  # of the agent: the driver has no PyTorch
    assert facts["ray_nodes"] == "1"
    assert not done.left()
