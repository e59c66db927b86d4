"""Claims about the rule checker: a run as it was passes, and every way to tamper with it is named"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import d5ray as d5
from d5ray.actors.run_row import RunOrigin
from d5ray.metrics.reader import Run
from d5ray.metrics.schema import table_of
from d5ray.recipes.checker import violations
from d5ray.recipes.recipe import Recipe, judged, overall
from tests.conftest import d5ray

FIXED = {
    "model": "mlp", "model.hidden": (32,), "dataset": "digits", "epochs": 6, "batch_size": 64,
    "optimizer": d5.Momentum, "optimizer.momentum": 0.5, "train_sampler": d5.ShuffleSampler,
}  # fmt: skip
MUTABLE = {"optimizer.learning_rate": 0.1, "agents": 2, "warmup_steps": 0}
METRICS = [d5.TestAccuracy() >= 0.5, d5.StepTime() <= 1.0, d5.BytesSent() <= 1e9]


@pytest.fixture(scope="module")
def made() -> Path:
    """The folder of a recipe's run, simulated: six epochs of two agents."""
    recipe = Recipe.of(FIXED, MUTABLE, METRICS, name="submitted")
    with d5.simulate(recipe.made(), origin=RunOrigin(**recipe.described())) as group:
        group.train(progress=False)
        verdicts = judged(recipe.criteria, group.tables(), "completed")
        group.close(
            verdict=overall(verdicts, "completed"), verdicts=table_of("verdicts", [v.row for v in verdicts])
        )
    return group.folder


Change = Callable[[pa.Table], pa.Table]


def column(name: str, change: Callable[[list[object]], list[object]]) -> Change:
    """A table with the values of one column changed."""

    def changed(table: pa.Table) -> pa.Table:
        place = table.schema.get_field_index(name)
        kind = table.schema.field(place)
        values = pa.array(
            change(table[name].to_pylist()), kind.type.value_type if _words(kind) else kind.type
        )
        return table.set_column(place, kind, values.dictionary_encode() if _words(kind) else values)

    return changed


def _words(kind: pa.Field) -> bool:
    return bool(pa.types.is_dictionary(kind.type))


def where(table: pa.Table, metric: str) -> list[int]:
    return [at for at, name in enumerate(table["metric"].to_pylist()) if name == metric]


def faster(table: pa.Table) -> pa.Table:
    """Step times halved."""
    at = set(where(table, "step_time"))
    return column("value", lambda vs: [v / 2 if i in at else v for i, v in enumerate(vs)])(table)  # type: ignore[operator]


def milliseconds(table: pa.Table) -> pa.Table:
    at = set(where(table, "step_time"))
    return column("unit", lambda us: ["ms" if i in at else u for i, u in enumerate(us)])(table)


def without_a_step(table: pa.Table) -> pa.Table:
    return table.filter(pc.invert(pc.and_(pc.equal(table["step"], 3), pc.equal(table["rank"], 1))))


def negative(table: pa.Table) -> pa.Table:
    at = where(table, "bytes_sent")[0]
    return column("value", lambda vs: [-1.0 if i == at else v for i, v in enumerate(vs)])(table)


TAMPERED: dict[str, tuple[str, Change, str]] = {
    "a verdict": ("verdicts", column("verdict", lambda v: ["FAIL", *v[1:]]), "recorded is FAIL, the rows"),
    "a measured value": ("verdicts", column("value", lambda v: [0.99, *v[1:]]), "the value recorded is 0.99"),
    "the overall verdict": ("runs", column("verdict", lambda _: ["FAIL"]), "recorded is FAIL, its criteria"),
    "quicker steps": ("samples", faster, "step_time <= 1: the value recorded"),
    "a unit": ("samples", milliseconds, "step_time is in 'ms': its unit is 's'"),
    "a row less": ("samples", lambda table: table.slice(1), "rows, .* were recorded"),
    "a row twice": ("samples", lambda t: pa.concat_tables([t, t.slice(0, 1)]), "rows of samples stand"),
    "a step less": ("samples", without_a_step, "rank 1 did not record 1 of .* steps, such as 3"),
    "a negative count": ("samples", negative, "bytes_sent has the value -1.0: it cannot be negative"),
    "what was fixed": ("runs", column("fixed", lambda _: ['{"model": "lenet"}']), "FIXED has the hash"),
    "what was run": (
        "runs", column("experiment", lambda j: [str(j[0]).replace('"batch_size": 64', '"batch_size": 32')]),
        "'batch_size' is FIXED to 64, but 32 was run",
    ),
    "a fixed leaf": (
        "runs", column("experiment", lambda j: [str(j[0]).replace('"momentum": 0.5', '"momentum": 0.9')]),
        "'optimizer.momentum' is FIXED to 0.5, but 0.9 was run",
    ),
    "a fixed component": (
        "runs", column("experiment", lambda j: [str(j[0]).replace("ShuffleSampler", "OrderedSampler")]),
        "'train_sampler' is FIXED to .*Shuffle.* but .*Ordered",
    ),
    "the class of a fixed leaf": (
        "runs", column("experiment", lambda j: [str(j[0]).replace("descent.Momentum", "x.Nesterov")]),
        "'optimizer' is FIXED to .*Momentum', but '.*Nesterov' was run",
    ),
    "a fixed argument of the model": (
        "runs", column("experiment", lambda j: [str(j[0]).replace('"hidden": [32]', '"hidden": [8]')]),
        "'model.hidden' is FIXED to .32., but .8. was run",
    ),
    "its status": ("runs", column("status", lambda _: ["interrupted"]), "only a completed one counts"),
    "its seed": ("runs", column("seed", lambda _: [None]), "no seed is recorded"),
    "its hash": ("runs", column("recipe_hash", lambda _: [None]), "comes from no recipe"),
    "another run's rows": ("verdicts", column("run_id", lambda v: ["other", *v[1:]]), "has rows of other"),
    "no machine": ("environment", lambda table: table.slice(0, 0), "the environment lacks hostname"),
}  # fmt: skip


def test_a_run_as_it_was_keeps_the_rules(made: Path) -> None:
    assert violations(Run(made)) == []
    done = d5ray("check", made.name)
    assert done.code == 0
    assert "SUCCESS" in done.out


@pytest.mark.parametrize("name", TAMPERED)
def test_tampering_is_named(name: str, made: Path, tmp_path: Path) -> None:
    """One table of a copy is changed."""
    table, change, words = TAMPERED[name]
    folder = tmp_path / made.name
    shutil.copytree(made, folder)
    file = folder / f"{table}.parquet"
    changed = change(pq.read_table(file))
    assert not changed.equals(pq.read_table(file))
    pq.write_table(changed, file)
    with pytest.raises(AssertionError, match=words):
        raise AssertionError("\n".join(violations(Run(folder))))


def test_a_broken_file_is_named(made: Path, tmp_path: Path) -> None:
    """A table that was cut; the command says so with exit code 1, and nothing is unpickled."""
    folder = tmp_path / made.name
    shutil.copytree(made, folder)
    samples = folder / "samples.parquet"
    samples.write_bytes(samples.read_bytes()[:-100])
    code = f"cos|system|(S'touch {tmp_path}/ran'|tR.".replace("|", "\n")
    (folder / "experiment.pickle").write_text(code)
    done = d5ray("check", str(folder))
    assert done.code == 1
    assert "cannot be read" in done.out
    assert "samples.parquet" in done.out
    assert not (tmp_path / "ran").exists()
