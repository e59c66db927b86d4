"""Claims about a search by Ray Tune: trials are runs, the worse are stopped, the best is judged anew"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from ray import tune
from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining
from ray.tune.search.basic_variant import BasicVariantGenerator
from ray.tune.search.optuna import OptunaSearch

import d5ray as d5
from d5ray.errors import AgentError, ConfigurationError
from d5ray.kits.laboratory.checking import series_checker
from d5ray.kits.laboratory.tuning.trial_runs import RecipeRuns
from d5ray.kits.laboratory.tuning.tuned import Tuned
from d5ray.metrics.record.reader import Run, list_runs
from d5ray.recipes.engine.recipe import Recipe
from tests.conftest import d5ray
from tests.patience import patience

RATE = "optimizer.learning_rate"
EPOCHS = 4
FIXED: dict[str, Any] = {"model": "mlp", "dataset": "digits", "epochs": EPOCHS}
MUTABLE: dict[str, Any] = {
    "agents": 2, "batch_size": 128, "optimizer": d5.optimizers.SGD(0.1), "warmup_steps": 0, "seed": 5,
    "cpus_per_agent": 0.5,
}  # fmt: skip
METRICS = [d5.metrics.TestAccuracy() >= 0.2]
PARTS = (FIXED, MUTABLE, METRICS)
GRID: dict[str, Any] = {RATE: {"grid_search": [0.2, 0.3, 1e-6, 1e30]}}
RECIPE = f"""
import d5ray as d5
FIXED = {FIXED!r}
MUTABLE = {{"agents": 2, "batch_size": 32, "optimizer": d5.optimizers.SGD(0.1), "cpus_per_agent": 0.5}}
METRICS = [d5.metrics.TestAccuracy() >= 0.2]
"""


@dataclass(frozen=True)
class Search:
    """A search that was made. said: on standard error."""

    found: Tuned
    home: Path
    said: str

    @property
    def trials(self) -> list[dict[str, Any]]:
        """The rows of the table, by learning rate."""
        rows: list[dict[str, Any]] = self.found.trials.to_pylist()
        return sorted(rows, key=lambda row: float(row[RATE]))

    def run(self, row: dict[str, Any]) -> Run:
        """The run of a trial."""
        return Run(self.home / "runs" / row["run"])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home of the module's own, and no Ray afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.setenv("D5RAY_HOME", str(folder))
        yield folder
        d5.shutdown()


@pytest.fixture(scope="module")
def search(home: Path) -> Search:
    """Four simulated trials one after the other: two good ones, one that learns nothing, one that fails."""
    import contextlib  # noqa: PLC0415
    import io  # noqa: PLC0415

    with contextlib.redirect_stderr(io.StringIO()) as said:
        found = d5.tune(
            PARTS, GRID, trials=1, seeds=6, by=d5.simulate,
            searcher=BasicVariantGenerator(max_concurrent=1),
            scheduler=ASHAScheduler(grace_period=1, reduction_factor=2, max_t=100),
        )  # fmt: skip
    return Search(found, home, said.getvalue())


def alone(**overrides: Any) -> Any:
    """What the recipe gives with these values, run by itself."""
    recipe = Recipe.of(*PARTS, name="alone", overrides=overrides)
    with d5.simulate(recipe.made()) as group:
        group.train(progress=False)
    return Run(group.folder)


def evaluations(run: Run) -> dict[int, float]:
    """The worst agent's accuracy after each epoch, by another reader than the search's."""
    rows = run.sql(
        "select epoch, min(value) v from samples where metric = 'test_accuracy' group by epoch order by epoch"
    )
    return {row["epoch"]: row["v"] for row in rows.to_pylist()}


@pytest.mark.full
def test_a_trial_is_what_its_settings_give_alone(search: Search) -> None:
    """The same parameters to the last bit, the same accuracy after each epoch; and the better is chosen."""
    good = [row for row in search.trials if row["status"] == "completed"]
    assert [row[RATE] for row in good] == [0.2, 0.3]
    for row in good:
        expected, run = alone(**{RATE: row[RATE]}), search.run(row)
        assert run.row["parameters_sha256"] == expected.row["parameters_sha256"]
        assert evaluations(run) == evaluations(expected)
        assert row["test_accuracy"] == evaluations(expected)[EPOCHS - 1]
        assert row["steps"] == expected.row["steps"]
    best = max(good, key=lambda row: float(row["test_accuracy"]))
    assert search.found.settings == {RATE: best[RATE]}
    assert (search.found.best, search.found.value) == (best["run"], best["test_accuracy"])


@pytest.mark.full
def test_a_scheduler_stops_the_trial_that_learns_nothing(search: Search) -> None:
    """After its first epochs, by what it told of them; its rows are kept, and its row says why it ended."""
    stopped = search.trials[0]
    assert stopped[RATE] == 1e-6
    assert stopped["status"] == "interrupted" and "Ray Tune" in stopped["reason"]
    steps = max(row["steps"] for row in search.trials if row["status"] == "completed")
    assert 0 < stopped["steps"] < steps
    told, whole = evaluations(search.run(stopped)), evaluations(alone(**{RATE: 1e-6}))
    assert told.items() < whole.items()


@pytest.mark.full
def test_a_trial_that_fails_is_told_of_and_ends_nothing(search: Search) -> None:
    """Its loss is not a number: it has no value, a reason, and a line on standard error."""
    failed = search.trials[-1]
    assert failed[RATE] == 1e30 and failed["test_accuracy"] is None
    assert failed["status"] == "nan_loss" and "the loss became" in failed["reason"]
    assert f"failed ({RATE}=1e+30)" in search.said


@pytest.mark.full
def test_the_best_is_judged_with_seeds_that_no_trial_had(search: Search) -> None:
    """Six of them, as a series of its own, whose verdict is that of the runs alone."""
    result = search.found.result
    seeds = {run.recipe.overrides["seed"] for run in result.runs}
    assert seeds == {6, 7, 8, 9, 10, 11}
    assert {search.run(row).row["seed"] for row in search.trials} == {5}
    assert {run.recipe.overrides[RATE] for run in result.runs} == {search.found.settings[RATE]}
    reached = sorted(evaluations(Run(run.folder))[EPOCHS - 1] for run in result.runs)
    (verdict,) = result.verdicts
    assert verdict.value == (reached[2] + reached[3]) / 2
    assert search.found.verdict == result.verdict == ("PASS" if reached[0] >= 0.2 else verdict.verdict)
    assert bool(search.found) is (result.verdict == "PASS")


@pytest.mark.full
def test_trials_are_runs_that_everything_knows(search: Search) -> None:
    """The list of runs, SQL over all, `show`, `compare` and `check` of the search as a series."""
    series = search.found.study
    names = {row["run"] for row in search.trials}
    assert {run.name for run in list_runs() if run.row["series"] == series.name} == names
    counted = series.sql("select count(distinct run_id) n from samples")["n"][0].as_py()
    assert counted == len(names) - 1  # the one that was stopped is not counted
    assert series.row["purpose"] == "tuning" and series.row["verdict"] is None
    assert set(series.row["runs"]) == names
    assert json.loads(series.row["detail"])["best"] == search.found.best
    assert series_checker.violations(series) == []
    shown = d5ray("show", series.name)
    assert shown.code == 0 and "learning_rate=1e-06" in shown.out
    one, other = [row["run"] for row in search.trials if row["status"] == "completed"]
    assert d5ray("compare", one, other).code == 0


@pytest.mark.full
def test_nothing_of_tunes_is_left(search: Search) -> None:
    """No folder of its own, in the home or in the user's."""
    assert not list(search.home.rglob("tuner.pkl"))
    assert sorted(path.name for path in search.found.study.folder.iterdir()) == [
        "series.parquet", "verdicts.parquet",
    ]  # fmt: skip


def test_what_is_told_after_an_epoch_is_what_was_recorded_by_then(home: Path) -> None:
    """Of a run that is over, for each epoch; nothing where an agent has not recorded it yet."""
    runs = RecipeRuns(Recipe.of(*PARTS, name="r"), d5.metrics.TestAccuracy(), d5.simulate, "", home)
    run = alone()
    tables = run.tables()
    expected = evaluations(run)
    assert {epoch: runs.after(epoch, tables, [0, 1]) for epoch in range(EPOCHS)} == expected
    assert runs.after(EPOCHS, tables, [0, 1]) is None
    assert runs.after(0, tables, [0, 1, 2]) is None
    samples = tables["samples"]
    late = pc.and_(pc.equal(samples["rank"], 1), pc.greater_equal(samples["epoch"], 2))
    behind = {**tables, "samples": samples.filter(pc.invert(pc.fill_null(late, False)))}
    assert runs.after(1, behind, [0, 1]) == expected[1] and runs.after(2, behind, [0, 1]) is None


@pytest.mark.full
def test_real_agents_are_trials_side_by_side(home: Path) -> None:
    """Drawn by Optuna, in processes of their own: the bits of a launch alone, and another seed at the end."""
    found = d5.tune(
        PARTS, {RATE: tune.loguniform(0.01, 0.5), "batch_size": [64, 128]}, trials=3, seeds=1,
        searcher=OptunaSearch(seed=1), quiet=True,
    )  # fmt: skip
    rows = found.trials.to_pylist()
    assert {row["status"] for row in rows} == {"completed"} and len({row[RATE] for row in rows}) == 3
    for row in rows:
        assert 0.01 <= row[RATE] <= 0.5 and row["batch_size"] in (64, 128)
    run = Run(home / "runs" / found.best)
    with d5.launch(Recipe.of(*PARTS, name="alone", overrides=found.settings).made(), quiet=True) as group:
        group.train(progress=False)
    assert run.row["parameters_sha256"] == Run(group.folder).row["parameters_sha256"]
    assert evaluations(run) == evaluations(Run(group.folder))
    assert run.row["ray_address"] and found.result.runs[0].recipe.overrides["seed"] == 6


@pytest.mark.full
def test_a_search_of_which_every_trial_fails_is_an_error(home: Path) -> None:
    """With the first one's reason; the series keeps it."""
    with pytest.raises(AgentError, match=r"none of 2 trials came to a result.*the loss became"):
        d5.tune(PARTS, {RATE: [1e30]}, trials=2, seeds=1, by=d5.simulate, quiet=True)


@pytest.mark.full
def test_after_ctrl_c_nothing_goes_on(tmp_path: Path) -> None:
    """Two trainings without an end are interrupted, and say so; no process is left."""
    (tmp_path / "mine.py").write_text(RECIPE.replace(f"'epochs': {EPOCHS}", "'epochs': 100000"))
    program = 'import d5ray as d5; d5.tune("mine.py", {"batch_size": [16, 32]}, trials=4, seeds=1)'
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"D5RAY_HOME": str(tmp_path)}, start_new_session=True,
    )  # fmt: skip
    root = tmp_path / "runs"
    end = time.monotonic() + patience(120)
    while time.monotonic() < end and process.poll() is None and _trained(root) < 2:
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=patience(90))[1]
    assert process.returncode != 0 and "KeyboardInterrupt" in said, said
    runs = list_runs(root)
    assert {run.row["status"] for run in runs} == {"interrupted"}
    assert any("the search was interrupted" in (run.row["stop_reason"] or "") for run in runs)
    assert not _session_of(process.pid)


def _trained(root: Path) -> int:
    """How many runs have recorded steps."""
    return sum(run.tables()["samples"].num_rows > 0 for run in list_runs(root))


def _session_of(pid: int) -> list[str]:
    """The processes that were started in the session of this one, and its Ray."""
    import psutil  # noqa: PLC0415

    found = []
    for each in psutil.process_iter():
        try:
            if os.getsid(each.pid) == pid or f"d5ray-{pid}-" in " ".join(each.cmdline()):
                found.append(" ".join(each.cmdline()))
        except (psutil.Error, ProcessLookupError, PermissionError):
            continue
    return found


SEED_FIXED = ({**FIXED, "seed": 1}, {key: value for key, value in MUTABLE.items() if key != "seed"}, METRICS)
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "fixed": ({"space": {"epochs": [1, 2]}}, "'epochs' is FIXED"),
    "no key": ({"space": {"learnig_rate": [1]}}, "no such key"),
    "a leaf alone": ({"space": {"learning_rate": [1]}}, "did you mean 'optimizer.learning_rate'"),
    "not in MUTABLE": ({"space": {"monitor_seconds": [1]}}, "'monitor_seconds', which is not in MUTABLE"),
    "no leaf": ({"space": {"optimizer.momentun": [1]}}, "has no 'momentun'"),
    "the seed": ({"space": {"seed": [1, 2]}}, "all trials of a search have the recipe's seed"),
    "empty": ({"space": {}}, "must be a dictionary of domains"),
    "no choice": ({"space": {"batch_size": []}}, "nothing to choose from"),
    "bounds in the wrong order": (
        {"space": {RATE: tune.loguniform(1, 0.1)}},
        f"bounds from 1 to 0.1 for '{RATE}': no value is between them",
    ),
    "nothing between": ({"space": {"batch_size": tune.randint(8, 8)}}, "from 8 to 8 for 'batch_size'"),
    "a value": ({"space": {"batch_size": 32}}, "must be a domain"),
    "no text": ({"space": {3: [1]}}, "keys are texts"),
    "trials": ({"trials": 0}, "trials"),
    "seeds": ({"seeds": 0}, "seeds"),
    "seed fixed": ({"recipe": SEED_FIXED}, "'seed' is FIXED"),
    "by": ({"by": "simulate"}, "d5.simulate"),
    "metric": ({"metric": "test_accuracy"}, "a metric such as"),
    "another metric": ({"metric": d5.metrics.ConsensusDistance()}, "consensus"),
    "searcher": ({"searcher": "optuna"}, "OptunaSearch"),
    "scheduler": ({"scheduler": "asha"}, "ASHAScheduler"),
    "checkpoints": (
        {"scheduler": PopulationBasedTraining(hyperparam_mutations={RATE: [0.1]})},
        "go on from checkpoints",
    ),
    "no criterion": ({"recipe": (FIXED, MUTABLE, [])}, "no METRICS by which"),
    "no recipe": ({"recipe": "digits_lent"}, "no recipe named"),
    "no training": ({"recipe": "scale_study", "space": {"factor": [2, 4]}}, "which is no training"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_refused_before_anything_starts(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name, with what to do; no run and no series was begun."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    given, said = WRONG[case]
    arguments = {"recipe": PARTS, "space": {"batch_size": [64, 128]}} | given
    with pytest.raises(ConfigurationError, match=said):
        d5.tune(**arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.full
@pytest.mark.parametrize(
    ("over", "said"),
    [
        ("batch_size", "write it as key=domain"),
        ("batch_size=32", "it must be a domain"),
        ("batch_size=loguniforn(1, 2)", "loguniform"),
        ("batch_size=loguniform(0, 1)", "loguniform"),
        ("batch_size=lograndint(64, 8)", "from 64 to 8 for 'batch_size'"),
        ("batch_size=loguniform", "no domain with its bounds"),
        ("batch_size=__import__('os')", "known: "),
        ("epochs=[1, 2]", "'epochs' is FIXED"),
    ],
)
def test_the_command_refuses_what_is_no_domain(over: str, said: str, tmp_path: Path) -> None:
    """With exit code 3, one line that says what to write, and no folder."""
    done = d5ray("tune", "digits_lenet", "--over", over, env={"D5RAY_HOME": str(tmp_path)})
    assert done.code == 3 and said in done.err and not list(tmp_path.iterdir())


@pytest.mark.full
def test_the_command_is_the_search(tmp_path: Path) -> None:
    """As JSON: the trials, the best of them, and the verdict, which is the exit code."""
    (tmp_path / "mine.py").write_text(RECIPE)
    done = d5ray(
        "tune", str(tmp_path / "mine.py"), "--over", "batch_size=[64, 128]", "--trials=2", "--seeds=1",
        "--simulated", "--asha", "--json", env={"D5RAY_HOME": str(tmp_path)},
    )  # fmt: skip
    told = done.json
    assert done.code == told["exit_code"] and len(told["trials"]) == 2
    assert told["settings"]["batch_size"] in (64, 128)
    assert told["best"] in {trial["run"] for trial in told["trials"]}
