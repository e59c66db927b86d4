"""Claims about the rule checker: a run as it was passes, and every way to tamper with it is named"""

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import d5ray as d5
from d5ray.actors.group.run_row import RunOrigin
from d5ray.kits.laboratory.checking.checker import violations
from d5ray.kits.laboratory.checking.rows import clocks
from d5ray.metrics.record.reader import Run
from d5ray.recipes.engine.recipe import Recipe
from d5ray.recipes.engine.run_recipe import Way, run
from d5ray.recipes.engine.runner import close
from tests.conftest import d5ray
from tests.kits.laboratory.test_reruns import Own
from tests.kits.laboratory.test_seeds import Simulated

FIXED: dict[str, Any] = {
    "model": "mlp", "model.hidden": (32,), "dataset": "digits", "epochs": 6, "batch_size": 64,
    "optimizer": d5.optimizers.Momentum, "optimizer.momentum": 0.5,
    "train_sampler": d5.samplers.ShuffleSampler,
}  # fmt: skip
METRICS = [d5.metrics.TestAccuracy() >= 0.5, d5.metrics.StepTime() <= 1.0, d5.metrics.BytesSent() <= 1e9]


def simulated(**changes: Any) -> Path:
    """A recipe's run with some of FIXED changed, in the simulation: six epochs of two agents."""
    how = {name: changes.pop(name) for name in ("failures", "compute", "resume") if name in changes}
    recipe = Recipe.of(
        FIXED | changes, {"optimizer.learning_rate": 0.1, "warmup_steps": 0}, METRICS, name="submitted"
    )
    with d5.simulate(recipe.made(), origin=RunOrigin(**recipe.described()), **how) as group:
        group.train(progress=False)
        close(recipe, group)
    return group.folder


@pytest.fixture(scope="module")
def made() -> Path:
    return simulated()


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


def without_a_step(table: pa.Table) -> pa.Table:
    return table.filter(pc.invert(pc.and_(pc.equal(table["step"], 3), pc.equal(table["rank"], 1))))


def negative(table: pa.Table) -> pa.Table:
    at = where(table, "bytes_sent")[0]
    return column("value", lambda vs: [-1.0 if i == at else v for i, v in enumerate(vs)])(table)


def to(name: str, value: object) -> tuple[str, Change]:
    """A column of the run's row set to a value."""
    return "runs", column(name, lambda _: [value])


def edited(name: str, old: str, new: str) -> tuple[str, Change]:
    """A part of a text in the run's row exchanged for another, which was there."""

    def change(values: list[object]) -> list[object]:
        assert old in str(values[0])
        return [str(values[0]).replace(old, new)]

    return "runs", column(name, change)


def fact(key: str, value: str) -> tuple[str, Change]:
    """A fact of the environment."""

    def change(table: pa.Table) -> pa.Table:
        rows = [row | {"value": value} if row["key"] == key else row for row in table.to_pylist()]
        return pa.Table.from_pylist(rows, schema=table.schema)

    return "environment", change


def later(seconds: float) -> Callable[[list[object]], list[object]]:
    return lambda values: [value + timedelta(seconds=seconds) for value in values]  # type: ignore[operator]


def invented(table: pa.Table) -> pa.Table:
    """A verdict on a metric that nobody has."""
    row = table.to_pylist()[0] | {"metric": "truth", "value": 1.0, "verdict": "PASS"}
    return pa.concat_tables([table, pa.Table.from_pylist([row], schema=table.schema)])


def of_a_stranger(table: pa.Table) -> pa.Table:
    """The last agent's rows again, as of an agent that the run does not have."""
    own = table.filter(pc.equal(table["agent"], "TrainingAgent(rank=1)"))
    own = column("agent", lambda v: ["TrainingAgent(rank=7)"] * len(v))(own)
    return pa.concat_tables([table, column("rank", lambda v: [7] * len(v))(own)])


def with_a_gap(table: pa.Table) -> pa.Table:
    """One row less, and those behind it as they were."""
    at = table.num_rows // 2
    return pa.concat_tables([table.slice(0, at), table.slice(at + 1)])


def backwards(table: pa.Table) -> pa.Table:
    """The times of one agent's steps in the order from the last to the first."""
    at = where(table, "step_time")
    times = table["t_mono"].to_pylist()
    ends = dict(zip(at, [times[i] for i in reversed(at)], strict=True))
    return column("t_mono", lambda v: [ends.get(i, time) for i, time in enumerate(v)])(table)


def earlier_wall(table: pa.Table) -> pa.Table:
    """One row was written a second before it was."""
    return column("t_wall", lambda v: [v[0] - timedelta(seconds=1), *v[1:]])(table)  # type: ignore[operator]


EASIER = ("verdicts", column("target", lambda v: [0.01, *v[1:]]))

# What an audit forged, and more of the kind. A column is changed as a whole or in a part.
FORGED: dict[str, tuple[tuple[str, Change], str]] = {
    "an easier target": (EASIER, r"test_accuracy >= 0.01, which is no criterion of the run"),
    "easier criteria": (
        edited("criteria", '"target": 0.5', '"target": 0.1'), "test_accuracy >= 0.1 of the run has no",
    ),
    "no criteria": (to("criteria", None), "not on which criteria"),
    "a criterion less": (
        ("verdicts", lambda table: table.slice(1)), "test_accuracy >= 0.5 of the run has no verdict",
    ),
    "a metric invented in the verdicts": (
        ("verdicts", invented), "verdicts has truth >= 0.5, which is no criterion",
    ),
    "a metric invented in the criteria": (
        edited("criteria", "test_accuracy", "truth"), "truth, a metric that neither",
    ),
    "how many are behind a verdict": (
        ("verdicts", column("n", lambda v: [99] * len(v))), "the n recorded is 99",
    ),
    "no experiment": (to("experiment", "{}"), "the experiment does not say agents, .*batch_size"),
    "an experiment that is no JSON": (to("experiment", "{"), "is not JSON .* d5ray did not write it so"),
    "a key less of the experiment": (edited("experiment", '"loss"', '"lost"'), "does not say loss"),
    "another seed": (to("seed", 5), "seed is 5 in runs, but the experiment has 0"),
    "more agents": (to("agents", 4), "agents is 4 in runs, but the experiment has 2"),
    "more steps": (to("steps", 1000), "1000 steps are said to be done, 72 are recorded"),
    "another number of rows": (to("rows", 3), "rows, 3 were recorded"),
    "a gap in the numbers": (("samples", with_a_gap), "they must count from 0 without a gap"),
    "an agent that there was not": (
        ("samples", of_a_stranger), r"rows of TrainingAgent\(rank=7\), but the run had 2",
    ),
    "under a shipped recipe's name": (to("recipe", "digits_lenet"), "digits_lenet of d5ray has the hash"),
    "another version": (to("d5ray_version", "9.9"), "d5ray_version is 9.9 in runs, the environment has"),
    "another commit": (to("git", "0" * 40), "git is 0000.* in runs, the environment has"),
    "a commit that was clean": (fact("git_dirty", "perhaps"), "it must be yes or no"),
    "another host": (to("host", "elsewhere"), "host is elsewhere in runs"),
    "another hash of FIXED": (to("recipe_hash", "0" * 64), "FIXED has the hash"),
    "a hash of a kept experiment": (
        to("experiment_sha256", "0" * 64), "is not the file that the run .* kept",
    ),
    "other parameters": (to("parameters_sha256", None), "no hash of the parameters is recorded"),
    "another graph": (to("graph", "{}"), "the graph in runs is not the one"),
    "a learning rate": (
        edited("experiment", '"learning_rate": 0.1', '"learning_rate": 0.2'),
        "holds another experiment than the run",
    ),
    "an end before the start": (("runs", column("ended", later(-1e6))), "the end must come later"),
    "steps that run backwards": (("samples", backwards), "ended a later step before an earlier one"),
    "the time of a row": (("samples", earlier_wall), "the clocks of .* drift apart by 1 s"),
    "another direction": (
        ("metrics", column("direction", lambda v: ["max"] * len(v))), "the direction 'max': d5ray has 'min'"
    ),
    "another name": (to("run_id", "other"), "the folder is called submitted-.*, the run other"),
}  # fmt: skip

TAMPERED: dict[str, tuple[str, Change, str]] = {
    "a verdict": ("verdicts", column("verdict", lambda v: ["FAIL", *v[1:]]), "recorded is FAIL, the rows"),
    "a measured value": ("verdicts", column("value", lambda v: [0.99, *v[1:]]), "the value recorded is 0.99"),
    "the overall verdict": (*to("verdict", "FAIL"), "recorded is FAIL, its criteria"),
    "quicker steps": ("samples", faster, "step_time <= 1: the value recorded"),
    "a row less": ("samples", lambda table: table.slice(1), "rows, .* were recorded"),
    "a row twice": ("samples", lambda t: pa.concat_tables([t, t.slice(0, 1)]), "rows of samples stand"),
    "a step less": ("samples", without_a_step, "rank 1 did not record 1 of .* steps, such as 3"),
    "a negative count": ("samples", negative, "bytes_sent has the value -1.0: it cannot be negative"),
    "what was fixed": (*to("fixed", '{"model": "lenet"}'), "FIXED has the hash"),
    "what was run": (
        *edited("experiment", '"batch_size": 64', '"batch_size": 32'),
        "'batch_size' is FIXED to 64, but 32 was run",
    ),
    "a fixed component": (
        *edited("experiment", "ShuffleSampler", "OrderedSampler"),
        "'train_sampler' is FIXED to .*Shuffle.* but .*Ordered",
    ),
    "the class of a fixed leaf": (
        *edited("experiment", "descent.Momentum", "x.Nesterov"),
        "'optimizer' is FIXED to .*Momentum', but '.*Nesterov' was run",
    ),
    "a fixed argument of the model": (
        *edited("experiment", '"hidden": [32]', '"hidden": [8]'),
        "'model.hidden' is FIXED to .32., but .8. was run",
    ),
    "its status": (*to("status", "interrupted"), "only a completed one counts"),
    "another run's rows": ("verdicts", column("run_id", lambda v: ["other", *v[1:]]), "has rows of other"),
    "no machine": ("environment", lambda table: table.slice(0, 0), "the environment lacks hostname"),
    **{name: (*change, words) for name, (change, words) in FORGED.items()},
}  # fmt: skip


@pytest.mark.full
def test_a_run_as_it_was_keeps_the_rules(made: Path) -> None:
    assert violations(Run(made)) == []
    done = d5ray("check", made.name)
    assert done.code == 0
    assert "SUCCESS" in done.out
    assert "· this finds accidents and contradictions, not a careful liar" in done.out


@pytest.mark.parametrize("git", [True, False])
def test_a_run_outside_of_a_repository_keeps_the_rules(
    git: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No commit is known there, nor where there is no git; none is missing."""
    monkeypatch.chdir(tmp_path)
    if not git:
        monkeypatch.setenv("PATH", str(tmp_path))
    assert violations(Run(simulated())) == []


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


@pytest.mark.full
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


# -- runs as they were, of every kind ------------------------------------------------------------------------


KINDS: dict[str, dict[str, Any]] = {
    "with servers": {"distributed": d5.optimizers.ASGD, "agents": 3, "servers": d5.Servers(2)},
    "with neighbours": {"distributed": d5.optimizers.DPSGD, "topology": d5.topologies.Ring(3)},
    "with a rule of the user's own": {"distributed": Own},
    "with a death": {
        "distributed": d5.optimizers.ASGD, "agents": 3, "on_failure": "continue",
        "failures": [d5.faults.Failure(2, 0.02)]
    },
    "with checkpoints": {"events": (d5.events.Checkpoint(every_epochs=2),)},
    "with arrays": {"dataset": d5.datasets.load_dataset("digits")},
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_an_untouched_run_of_any_kind_keeps_the_rules(name: str) -> None:
    assert violations(Run(simulated(**KINDS[name]))) == []


def test_a_run_that_went_on_from_a_checkpoint_keeps_the_rules() -> None:
    """Its steps begin where the checkpoint was."""
    first = simulated(events=(d5.events.Checkpoint(every_epochs=2),), epochs=2)
    assert violations(Run(simulated(events=(d5.events.Checkpoint(every_epochs=2),), resume=first))) == []


# -- the manifest --------------------------------------------------------------------------------------------


def test_a_run_has_a_manifest_at_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file comes later; `check` names a changed byte, with exit code 1."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    criteria = [d5.metrics.TestAccuracy() >= 0.01]
    recipe = Recipe.of({"job": Simulated, "hidden": 4}, {}, criteria, name="own")
    assert run(recipe, Way(1, None, None, d5.Faults()), None, json=True, timings=False) == 0
    folder = Run.find("last").folder
    listed = {line[66:] for line in (folder / "manifest.sha256").read_text().splitlines()}
    assert listed == {path.name for path in folder.iterdir()} - {"manifest.sha256"}
    with (folder / "metrics.parquet").open("ab") as file:
        file.write(b" ")
    done = d5ray("check", "last")
    assert (done.code, "'metrics.parquet' is not what it was" in done.out) == (1, True), done.out


@pytest.mark.parametrize(
    ("agent", "restored", "constants", "right"),
    [
        ("NodeMonitor(here)", 0, 1, True),
        ("NodeMonitor(here)", 0, 2, False),
        ("NodeMonitor(here)", 2, 3, True),
        ("NodeMonitor(here)", 1, 3, False),
        ("TrainingAgent(rank=0)", 2, 2, False),
    ],
)
def test_a_restored_aggregator_has_clocks_of_its_own(
    agent: str, restored: int, constants: int, right: bool
) -> None:
    """The monitor of its node is a thread of it; clocks of agents stay one constant apart."""
    mono = np.arange(6)
    wall = mono + np.sort(mono % constants) * 4
    samples = pa.table({"agent": [agent] * 6, "attempt": [0] * 6, "t_wall": wall, "t_mono": mono})
    events = pa.table({"name": pa.array(["aggregator_restored"] * restored, pa.utf8())})
    folder: Any = SimpleNamespace(tables={"samples": samples, "events": events})
    assert (list(clocks(folder)) == []) is right
