"""Claims about exports: what the format's own reader reads back is what the run's tables say"""

import json
import math
import sys
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.metrics.exports.benchmarker import benchmarked
from d5ray.metrics.exports.catalogue import FORMATS, export, export_all
from d5ray.metrics.exports.exporter import WholeExporter, needed
from d5ray.metrics.judge.run_series import RunSeries
from d5ray.metrics.record.reader import Run
from d5ray.metrics.record.schema import table_of
from d5ray.metrics.record.store import RunWriter
from tests.conftest import d5ray, python
from tests.metrics.statistics.test_estimates import Row, row

ODD = (1.0, math.nan, math.inf, -math.inf, None, 0.1, 0.1)


@pytest.fixture(autouse=True)
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorBoard reads and writes over its own stub of TensorFlow, which takes seconds to import."""
    monkeypatch.setitem(sys.modules, "tensorboard.compat.notf", ModuleType("notf"))


@pytest.fixture(scope="module")
def run() -> Run:
    """Two simulated agents, three epochs of LeNet's smaller brother, five steps of warm-up."""
    experiment = d5.Experiment(
        model="mlp", model_kwargs={"hidden": (8,)}, dataset="digits",
        optimizer=d5.optimizers.Momentum(0.1, 0.9), agents=2, batch_size=100, epochs=3, seed=3,
        recording=d5.metrics.Recording(warmup_steps=5), name="exported",
    )  # fmt: skip
    with d5.simulate(experiment) as group:
        group.train(progress=False)
    return Run(group.folder)


@pytest.fixture
def odd(tmp_path: Path) -> Run:
    """A run whose values are hard to write: no number, infinite, null, and one that comes twice at once."""
    writer = RunWriter(tmp_path, "odd")
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    writer.open({"recipe": "odd", "started": moment, "ended": moment, "status": "completed", "agents": 1})
    row = {
        "run_id": "odd", "agent": "TrainingAgent(rank=0)", "rank": 0, "node": 'a "node", odd', "attempt": 0,
        "level": 3, "metric": "loss", "unit": "1", "scope": "agent", "phase": "train", "rep": 0, "loops": 1,
        "status": "ok", "source": "measured", "t_wall": moment, "t_mono": 0,
    }  # fmt: skip
    steps = [0, 1, 2, 3, 4, 5, 5]
    rows = [row | {"seq": at, "step": steps[at], "value": value} for at, value in enumerate(ODD)]
    writer.append(table_of("samples", rows).combine_chunks().to_batches()[0])
    writer.close()
    return Run(writer.folder)


def values_of(run: Run, metric: str, agent: str, phase: str) -> Any:
    """Rows of `samples`, by step."""
    rows = run.tables()["samples"].to_pandas()
    found = rows[(rows.metric == metric) & (rows.agent == agent) & (rows.phase == phase)]
    return found[found.value.notna()].sort_values("seq")


AGENTS = ("TrainingAgent(rank=0)", "TrainingAgent(rank=1)")
CURVES = [("train", "step_time"), ("warmup", "loss"), ("train", "loss"), ("test", "test_accuracy")]


# -- tables and documents ------------------------------------------------------------------------------------


def test_csv_gives_back_every_table(run: Run, odd: Run, tmp_path: Path) -> None:
    """Read with Arrow's reader into the table's own types: equal, null apart from NaN and from no text."""
    for number, each in enumerate((run, odd)):
        folder = export(each, "csv", tmp_path / f"tables{number}")
        assert {file.name for file in folder.iterdir()} == {f"{name}.csv" for name in each.tables()}
        for name, table in each.tables().items():
            plain = pa.schema(
                (f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type)
                for f in table.schema
            )
            options = pa.csv.ConvertOptions(
                column_types=plain,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=[""],
            )
            found = pa.csv.read_csv(folder / f"{name}.csv", convert_options=options)
            expected = table.cast(plain)
            if "value" in plain.names:  # NaN is not equal to itself
                np.testing.assert_array_equal(found["value"].to_numpy(), expected["value"].to_numpy())
                assert found["value"].is_null().equals(expected["value"].is_null())
                found, expected = found.drop_columns("value"), expected.drop_columns("value")
            assert found.equals(expected), name


SCHEMA = {
    "framework", "framework_full", "problem", "mode", "batch_size", "batch_size_per_device", "nb_epoch",
    "nb_gpus", "gpus", "device", "platform", "time_total", "time_epoch", "time_batch", "time_sample",
    "samples_per_second", "power", "gflop_per_second", "gflop_per_joule", "gflop_per_joule_CPU",
    "gflop_per_joule_GPU", "gflop_per_joule_device", "samples_per_joule", "samples_per_joule_CPU",
    "samples_per_joule_GPU", "samples_per_joule_device", "start_time", "path_out",
    "hostname", "linux", "shape_x_train", "time",
}  # fmt: skip


def test_benchmarkers_keys_and_what_they_mean(run: Run, tmp_path: Path) -> None:
    """All keys and no others; counts and times as pandas finds them in the rows; null where nothing is."""
    found = json.loads(export(run, "benchmarker", tmp_path / "b.json").read_text())
    assert set(found) == SCHEMA
    rows = run.tables()["samples"].to_pandas()
    steps = rows[(rows.metric == "step_time") & (rows.phase == "train")].groupby("step").value.max()
    seen = rows[(rows.metric == "samples") & (rows.epoch == 0)]
    assert found["problem"]["cnt_samples"] == seen.value.sum() == 1438
    assert found["problem"]["cnt_batches_per_epoch"] == seen.step.nunique() == 8
    assert (found["batch_size"], found["batch_size_per_device"], found["nb_epoch"]) == (200, 100, 3)
    assert found["time_total"] == found["time"] == pytest.approx(steps.sum())
    assert len(steps) == 3 * 8 - 5
    assert found["time_batch"] == pytest.approx(steps.mean())
    assert found["time_epoch"] == pytest.approx(8 * steps.mean())
    assert found["time_sample"] == pytest.approx(steps.mean() / 200)
    worked = rows[(rows.metric == "samples") & (rows.phase == "train")].value.sum()
    assert found["samples_per_second"] == pytest.approx(worked / steps.sum())
    assert found["framework"] == "pytorch"
    assert found["framework_full"].startswith("pytorch-2.")
    assert (found["problem"]["name"], found["mode"], found["nb_gpus"]) == ("mlp", "training", 0)
    assert found["power"]["joules_total"] is found["gflop_per_second"] is found["shape_x_train"] is None
    assert found["platform"]["hostname"] == found["hostname"] == run.row["host"]


def test_benchmarker_of_a_run_without_steps(odd: Run, tmp_path: Path) -> None:
    """Nothing was timed: null, and no error."""
    found = json.loads(export(odd, "benchmarker", tmp_path / "b.json").read_text())
    assert set(found) == SCHEMA
    assert {found[key] for key in SCHEMA if key.startswith("time")} == {None}


def test_benchmarker_counts_an_epoch_that_the_run_has_whole(tmp_path: Path) -> None:
    """Agents of a 2 × 2 mesh, 10 samples a replica, resumed at the third of four steps; one is done twice."""
    job = {"epochs": 3, "batch_size": 10, "mesh": {"replicas": 2, "stages": 2}}
    seconds, rows = np.random.default_rng(1).lognormal(size=(12, 4)), []
    for step, rank, attempt in [*((s, r, 0) for s in range(2, 12) for r in range(4)), (5, 0, 1)]:
        seconds[step, rank] += 10.0 * attempt  # the second time it took longer
        place: Row = {"rank": rank, "step": step, "epoch": step // 4, "attempt": attempt}
        samples = None if rank % 2 else 6.0 if step % 4 == 3 else 10.0
        seq = 0 if attempt else 2 * (step - 2)
        rows.append(row("step_time", seconds[step, rank], seq=seq, **place))
        rows.append(row("samples", samples, seq=seq + 1, **place))
    found = []
    for steps, reason in ((12, None), (8, "stopped")):
        writer = RunWriter(tmp_path / str(steps), "r")
        told = {"agents": 4, "status": "completed", "stop_reason": reason, "experiment": json.dumps(job)}
        writer.open(told | {"recipe": "planted", "host": "n"})
        kept = [each for each in rows if each["step"] < steps]
        writer.append(table_of("samples", kept).combine_chunks().to_batches()[0])
        writer.close()
        found.append(benchmarked(Run(writer.folder)))
    whole, stopped = found
    slowest = seconds[2:].max(axis=1)
    assert (whole["problem"]["cnt_samples"], whole["problem"]["cnt_batches_per_epoch"]) == (2 * 36, 4)
    assert (whole["batch_size"], whole["batch_size_per_device"]) == (20, 10)
    assert whole["time_sample"] == pytest.approx(slowest.mean() / 20)
    assert whole["time_epoch"] == pytest.approx(4 * slowest.mean())
    assert whole["samples_per_second"] == pytest.approx(2 * (16 + 36 + 36) / slowest.sum())
    assert stopped["problem"]["cnt_samples"] is stopped["time_epoch"] is None  # its epoch may lack an end


# -- the stores of other programs ----------------------------------------------------------------------------


def test_tensorboard_reads_every_curve(run: Run, tmp_path: Path) -> None:
    """TensorBoard's own reader: steps and instants as recorded, values as its 32 bits hold them."""
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = export(run, "tensorboard", tmp_path / "logs")
    for agent, place in zip(AGENTS, ("TrainingAgent_rank_0", "TrainingAgent_rank_1"), strict=True):
        read = accumulators.EventAccumulator(str(folder / place), size_guidance={"scalars": 0})
        read.Reload()
        for phase, metric in CURVES:
            rows = values_of(run, metric, agent, phase)
            found = read.Scalars(f"{phase}/{metric}")
            assert len(rows) > 0
            assert [event.step for event in found] == rows.step.tolist()
            assert [event.value for event in found] == rows.value.astype(np.float32).tolist()
            instants = [event.wall_time for event in found]
            np.testing.assert_allclose(instants, rows.t_wall.astype("int64") / 1e9, rtol=0, atol=1e-5)


def test_tensorboard_keeps_what_is_not_a_number(odd: Run, tmp_path: Path) -> None:
    """NaN and the infinities are points; null is none."""
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    read = accumulators.EventAccumulator(
        str(export(odd, "tensorboard", tmp_path / "logs") / "TrainingAgent_rank_0")
    )
    read.Reload()
    found = [event.value for event in read.Scalars("train/loss")]
    expected = np.array([value for value in ODD if value is not None], dtype=np.float32)
    np.testing.assert_array_equal(np.array(found, dtype=np.float32), expected)


@pytest.fixture
def quiet_mlflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """MLflow's own module, which warns of its libraries."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("alembic")
        yield pytest.importorskip("mlflow.tracking")


@pytest.mark.full
def test_mlflow_reads_runs_back(run: Run, odd: Run, tmp_path: Path, quiet_mlflow: Any) -> None:
    """Its client: curves, parameters, tags and status; a value that comes twice at once is there twice."""
    store = export(run, "mlflow", tmp_path / "store")
    assert export(odd, "mlflow", store) == store
    client = quiet_mlflow.MlflowClient(f"sqlite:///{store}/mlflow.db")
    (found,) = client.search_runs([client.get_experiment_by_name("exported").experiment_id])
    assert (found.info.run_name, found.info.status) == (run.name, "FINISHED")
    assert found.info.start_time == int(run.row["started"].timestamp() * 1000)
    assert found.data.params["optimizer.momentum"] == "0.9"
    assert found.data.params["model_kwargs.hidden"] == "[8]"
    assert found.data.tags["d5ray.run_id"] == run.name
    assert found.data.tags[f"environment.{run.row['host']}.communicator"] == "simulated"
    for phase, metric in CURVES:
        history = client.get_metric_history(found.info.run_id, f"{phase}/{metric}/TrainingAgent_rank_1")
        rows = values_of(run, metric, AGENTS[1], phase)
        assert [(point.step, point.value) for point in sorted(history, key=lambda point: point.step)] == list(
            zip(rows.step, rows.value, strict=True)
        )
    (other,) = client.search_runs([client.get_experiment_by_name("odd").experiment_id])
    history = client.get_metric_history(other.info.run_id, "train/loss/TrainingAgent_rank_0")
    found_values = [point.value for point in sorted(history, key=lambda p: (p.step, p.timestamp))]
    largest = sys.float_info.max
    np.testing.assert_array_equal(found_values, [1.0, math.nan, largest, -largest, 0.1, 0.1])
    with pytest.raises(ConfigurationError, match=rf"has the run {odd.name} already"):
        export(odd, "mlflow", store)


# -- what is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", FORMATS)
def test_nothing_that_exists_is_overwritten(to: str, odd: Run, tmp_path: Path) -> None:
    """Neither a file nor a folder; it stays as it was."""
    target = tmp_path / "mine"
    target.mkdir()
    (target / "thesis.tex").write_text("years")
    with pytest.raises(ConfigurationError, match=r"mine exists.*--out"):
        export(odd, to, target)
    assert [file.name for file in target.iterdir()] == ["thesis.tex"]
    with pytest.raises(ConfigurationError, match=r"thesis\.tex exists.*--out"):
        export(odd, to, target / "thesis.tex")
    assert (target / "thesis.tex").read_text() == "years"


class Breaking(WholeExporter):
    name: ClassVar[str] = "breaking"
    ending: ClassVar[str] = ".x"

    def write(self, run: Run, target: Path) -> None:
        target.mkdir()
        (target / "half").write_text("half")
        raise MemoryError


def test_an_export_that_fails_leaves_nothing(odd: Run, tmp_path: Path) -> None:
    """No half of a file that could be taken for the whole."""
    with pytest.raises(MemoryError):
        Breaking().export(odd, tmp_path / "new" / "out")
    assert list((tmp_path / "new").iterdir()) == []


def test_a_package_that_is_missing_is_named_with_its_extra() -> None:
    with pytest.raises(ConfigurationError, match=r"needs Nonesuch.*pip install 'd5ray\[export\]'"):
        needed("d5ray_nonesuch", "Nonesuch")


def test_who_exports_nothing_loads_nothing() -> None:
    """The formats' packages come with the export that needs them."""
    program = (
        "import sys, d5ray.metrics.exports.catalogue\n"
        "heavy = {'tensorboard', 'mlflow', 'sqlalchemy', 'torch', 'ray', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    assert python("-c", program).err == ""


# -- the command ---------------------------------------------------------------------------------------------


def test_the_command_writes_runs_and_series(run: Run, tmp_path: Path) -> None:
    """A run by its name; of a series every run; an unknown format is one clear error."""
    done = d5ray("export", run.name, "--to", "benchmarker", cwd=tmp_path)
    assert done.code == 0, done.err
    assert (tmp_path / f"{run.name}.benchmarker.json").is_file()
    wrong = d5ray("export", run.name, "--to", "cvs", cwd=tmp_path)
    assert (wrong.code, "did you mean 'csv'?" in wrong.err) == (3, True)
    series = RunSeries(run.folder.parent.parent / "series" / "exported-series")
    series.write({"purpose": "seeds", "runs": [run.name], "seeds": [3], "status": "completed"})
    written = export_all(series, "csv", tmp_path / "all")
    assert written == {run.name: tmp_path / "all" / f"{run.name}-csv"}
    assert (written[run.name] / "samples.csv").is_file()
    with pytest.raises(ConfigurationError, match="all exists"):
        export_all(series, "csv", tmp_path / "all")
