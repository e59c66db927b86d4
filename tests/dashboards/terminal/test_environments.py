"""Claims about what is shown of the environment: all that was recorded, once where it is the same"""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import d5ray as d5
from d5ray.dashboards.terminal import environments
from d5ray.metrics.judge.comparison import compare
from d5ray.metrics.record.reader import Run
from tests.conftest import d5ray


def simulated() -> Run:
    experiment = d5.Experiment(
        model="mlp", model_kwargs={"hidden": (4,)}, dataset="digits", optimizer=d5.optimizers.SGD(0.1),
        agents=1,
        batch_size=700, name="shown",
    )  # fmt: skip
    with d5.simulate(experiment) as group:
        group.train(progress=False)
    return Run(group.folder)


def elsewhere(run: Run) -> None:
    """As if the run had had another number of threads, on a machine that tells one thing more."""
    file = run.folder / "environment.parquet"
    table = pq.read_table(file)
    threads = pc.equal(table["key"], "torch_threads")
    values = pc.if_else(threads, "9 within operations", table["value"])
    table = table.set_column(table.schema.get_field_index("value"), table.schema.field("value"), values)
    more = {"run_id": [run.name], "node": [run.row["host"]], "key": ["cooling"], "value": ["water"]}
    pq.write_table(pa.concat_tables([table, pa.table(more, table.schema)]), file)


def test_the_command_shows_what_was_recorded() -> None:
    """As data all of it, and as text every value that is known."""
    run = simulated()
    recorded = {row["key"]: row["value"] for row in run.tables()["environment"].to_pylist()}
    assert {"blas_numpy", "thread_pools", "torch_blas", "cpu_model", "git_commit"} <= set(recorded)
    found = d5ray("show", run.name, "--environment", "--json").json
    assert found == {run.name: {run.row["host"]: recorded}}
    shown = d5ray("show", run.name, "--environment").out
    assert all(key in shown for key in recorded)
    assert recorded["cpu_model"] in shown


def test_what_differs_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """By `compare`, with both values, also of a fact that only one run has; and shown for each run."""
    first, second = simulated(), simulated()
    assert not [note for note in compare([first], [second]).notes if "differs" in note]
    elsewhere(second)
    notes = compare([first], [second]).notes
    assert [note for note in notes if note.startswith("torch_threads differs: ") and "9 within" in note]
    assert "cooling differs: not recorded, water" in notes
    environments.show(environments.of([first, second]))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines if line.startswith("cooling")] == ["recorded", "water"]
    assert len([line for line in lines if line.startswith("cpu_model")]) == 1


def test_a_fact_of_several_nodes_is_no_difference(tmp_path: Path) -> None:
    """Two runs on the same two machines are alike, whatever differs between the machines."""
    runs = [simulated(), simulated()]
    for run in runs:
        file = run.folder / "environment.parquet"
        table = pq.read_table(file)
        more = {"run_id": [run.name], "node": ["other"], "key": ["cpu_model"], "value": ["another"]}
        pq.write_table(pa.concat_tables([table, pa.table(more, table.schema)]), file)
    assert not [note for note in compare(runs[:1], runs[1:]).notes if "differs" in note]
