"""Claims about the rule checker: a run as it was passes, and every way to tamper with it is named"""

import json
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
from d5ray.metrics.record.reader import Run
from d5ray.metrics.record.schema import table_of
from d5ray.recipes.engine.checking.checker import violations
from d5ray.recipes.engine.checking.rows import clocks
from d5ray.recipes.engine.recipe import Recipe, judged, overall
from tests.conftest import d5ray

FIXED: dict[str, Any] = {
    "model": "mlp", "model.hidden": (32,), "dataset": "digits", "epochs": 6, "batch_size": 64,
    "optimizer": d5.optimizers.Momentum, "optimizer.momentum": 0.5,
    "train_sampler": d5.samplers.ShuffleSampler,
}  # fmt: skip
MUTABLE = {"optimizer.learning_rate": 0.1, "agents": 2, "warmup_steps": 0}
METRICS = [d5.metrics.TestAccuracy() >= 0.5, d5.metrics.StepTime() <= 1.0, d5.metrics.BytesSent() <= 1e9]


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


def to(name: str, value: object) -> tuple[str, Change]:
    """A column of the run's row set to a value."""
    return "runs", column(name, lambda _: [value])


def edited(name: str, old: str, new: str) -> tuple[str, Change]:
    """A part of a text in the run's row exchanged for another, which was there."""

    def change(values: list[object]) -> list[object]:
        assert old in str(values[0])
        return [str(values[0]).replace(old, new)]

    return "runs", column(name, change)


def of_the_experiment(key: str, value: object) -> tuple[str, Change]:
    """A value of the experiment, as the run's row has it."""
    return "runs", column("experiment", lambda v: [json.dumps(json.loads(str(v[0])) | {key: value})])


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


def more_steps(table: pa.Table) -> pa.Table:
    return column("step", lambda v: [None if step is None else step + 1 for step in v])(table)  # type: ignore[operator]


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
    "criteria that are none": (
        to("criteria", '[{"metric": 1}]'), "does not write|KeyError|'label'|describes no",
    ),
    "how many are behind a verdict": (
        ("verdicts", column("n", lambda v: [99] * len(v))), "the n recorded is 99",
    ),
    "no experiment": (to("experiment", "{}"), "the experiment does not say agents, .*batch_size"),
    "no text of an experiment": (to("experiment", None), "the experiment does not say agents"),
    "an experiment that is no JSON": (to("experiment", "{"), "is not JSON .* d5ray did not write it so"),
    "an experiment that is a list": (to("experiment", "[1]"), "must be a dict in JSON"),
    "a key less of the experiment": (edited("experiment", '"loss"', '"lost"'), "does not say loss"),
    "another seed": (to("seed", 5), "seed is 5 in runs, but the experiment has 0"),
    "another seed in the experiment": (
        of_the_experiment("seed", 5), "seed is 0 in runs, but the experiment has 5",
    ),
    "more agents": (to("agents", 4), "agents is 4 in runs, but the experiment has 2"),
    "fewer agents": (to("agents", 1), r"rows of TrainingAgent\(rank=1\), but the run had 1 agents"),
    "no number of agents": (to("agents", None), "no agents is recorded"),
    "more steps": (to("steps", 1000), "1000 steps are said to be done, 72 are recorded"),
    "fewer steps": (to("steps", 10), "10 steps are said to be done, 72 are recorded"),
    "no number of steps": (to("steps", None), "how many steps were done is not said"),
    "steps moved by one": (("samples", more_steps), "72 steps are said to be done, 73 are recorded"),
    "another number of rows": (to("rows", 3), "rows, 3 were recorded"),
    "no number of rows": (to("rows", None), "how many rows were recorded is not said"),
    "a gap in the numbers": (("samples", with_a_gap), "they must count from 0 without a gap"),
    "an agent that there was not": (
        ("samples", of_a_stranger), r"rows of TrainingAgent\(rank=7\), but the run had 2",
    ),
    "a rank of another": (
        ("samples", column("rank", lambda v: [0] * len(v))), r"TrainingAgent\(rank=1\) with the rank 0"
    ),
    "under a shipped recipe's name": (to("recipe", "digits_lenet"), "digits_lenet of d5ray has the hash"),
    "another version": (to("d5ray_version", "9.9"), "d5ray_version is 9.9 in runs, the environment has"),
    "no version": (to("d5ray_version", None), "no d5ray_version is recorded"),
    "another commit": (to("git", "0" * 40), "git is 0000.* in runs, the environment has"),
    "no commit": (to("git", None), "no git is recorded"),
    "a commit that was clean": (fact("git_dirty", "perhaps"), "it must be yes or no"),
    "a commit of which nobody knew": (fact("git_dirty", "unavailable: git"), "it must be yes or no"),
    "another host": (to("host", "elsewhere"), "host is elsewhere in runs"),
    "another machine": (fact("hostname", "elsewhere"), "the environment has elsewhere"),
    "another hash of FIXED": (to("recipe_hash", "0" * 64), "FIXED has the hash"),
    "a hash of a kept experiment": (
        to("experiment_sha256", "0" * 64), "is not the file that the run .* kept",
    ),
    "no hash of it": (
        to("experiment_sha256", None), "the experiment that the run kept, or its hash, is not there",
    ),
    "other parameters": (to("parameters_sha256", None), "no hash of the parameters is recorded"),
    "another graph": (to("graph", "{}"), "the graph in runs is not the one"),
    "a learning rate": (
        edited("experiment", '"learning_rate": 0.1', '"learning_rate": 0.2'),
        "holds another experiment than the run",
    ),
    "an end before the start": (("runs", column("ended", later(-1e6))), "the end must come later"),
    "a start before its name": (("runs", column("started", later(-60))), "before it was named"),
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


def simulated(**changes: Any) -> Path:
    """A recipe's run with some of FIXED changed, in the simulation."""
    how = {name: changes.pop(name) for name in ("failures", "compute", "resume") if name in changes}
    recipe = Recipe.of(
        FIXED | changes, {"optimizer.learning_rate": 0.1, "warmup_steps": 0}, METRICS, name="kind"
    )
    with d5.simulate(recipe.made(), origin=RunOrigin(**recipe.described()), **how) as group:
        group.train(progress=False)
        verdicts = judged(recipe.criteria, group.tables(), "completed")
        group.close(
            verdict=overall(verdicts, "completed"), verdicts=table_of("verdicts", [v.row for v in verdicts])
        )
    return group.folder


class Own(d5.DistributedOptimizer):
    """A rule of the user's own."""

    def step(self, batch: d5.Batch) -> None:
        gradient = self.gradient(batch)
        self.communication.allreduce(gradient)
        self.apply(gradient)


KINDS: dict[str, dict[str, Any]] = {
    "with servers": {"distributed": d5.optimizers.ASGD, "agents": 3, "servers": d5.Servers(2)},
    "by gossip": {
        "distributed": d5.optimizers.ADPSGD, "topology": d5.topologies.Ring(4),
        "compute": d5.simulation.LogNormalTime(1e-3, 1.0)
    },
    "with neighbours": {"distributed": d5.optimizers.DPSGD, "topology": d5.topologies.Ring(3)},
    "with a rule of the user's own": {"distributed": Own},
    "with a death": {
        "distributed": d5.optimizers.ASGD, "agents": 3, "on_failure": "continue",
        "failures": [d5.faults.Failure(2, 0.02)]
    },
    "with a late agent": {
        "distributed": d5.optimizers.ASGD, "agents": 3, "late": d5.faults.Late(agent=2, seconds=0.01)
    },
    "with checkpoints": {"events": (d5.events.Checkpoint(every_epochs=2),)},
    "that stops early": {"events": (d5.events.StopAtAccuracy(0.3),)},
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


@pytest.mark.full
def test_a_run_has_a_manifest_at_its_end_which_check_holds_it_to(tmp_path: Path) -> None:
    """No file comes later; a changed byte is named, with exit code 1, and a file of one's own is none."""
    home = {"D5RAY_HOME": str(tmp_path / "home")}
    (tmp_path / "mine.py").write_text(SIMULATED)
    done = d5ray("run", str(tmp_path / "mine.py"), "--json", env=home)
    assert done.code == 0, done.err
    folder = Path(done.json["folder"])
    listed = {line[66:] for line in (folder / "manifest.sha256").read_text().splitlines()}
    assert listed == {path.name for path in folder.iterdir()} - {"manifest.sha256"}
    (folder / "notes.txt").write_text("mine")
    assert d5ray("check", "last", env=home).code == 0
    with (folder / "metrics.parquet").open("ab") as file:
        file.write(b" ")
    done = d5ray("check", "last", env=home)
    assert (done.code, "'metrics.parquet' is not what it was" in done.out) == (1, True), done.out


SIMULATED = """
from dataclasses import dataclass
import d5ray as d5
from d5ray.experiment import Experiment
from d5ray.metrics.record.schema import table_of
from d5ray.recipes.engine.recipe import Result, judged, overall


@dataclass(frozen=True)
class Simulated:
    epochs: int = 1
    seed: int = 3
    name: str = ""

    def run(self, recipe, origin, address, quiet):
        wanted = Experiment("mlp", "digits", d5.optimizers.SGD(0.1), epochs=self.epochs, seed=self.seed)
        with d5.simulate(wanted, origin=origin) as group:
            group.train(progress=False)
            verdicts = judged(recipe.criteria, group.tables(), "completed")
            verdict = overall(verdicts, "completed")
            group.close(verdict=verdict, verdicts=table_of("verdicts", [v.row for v in verdicts]))
        return Result(recipe, group.run_id, group.folder, verdict, verdicts, "completed", "", {})


FIXED, MUTABLE, METRICS = {"job": Simulated}, {}, [d5.metrics.TestAccuracy() >= 0.01]
"""


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
