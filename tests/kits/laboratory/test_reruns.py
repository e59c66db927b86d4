"""Claims about repeating a run from its folder: what was made honestly comes out so again"""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import d5ray as d5
from d5ray.actors.group.run_row import RunOrigin
from d5ray.errors import ConfigurationError
from d5ray.kits.laboratory.checking.checker import violations
from d5ray.kits.laboratory.repeats.reruns import rerun
from d5ray.metrics.record.artifacts import EXPERIMENT
from d5ray.metrics.record.reader import Run
from d5ray.recipes.engine.recipe import Recipe
from d5ray.recipes.engine.runner import close

pytestmark = pytest.mark.usefixtures("own_home")
METRICS = [d5.metrics.TestAccuracy() >= 0.3, d5.metrics.BytesSent() <= 1e9]
FIXED: dict[str, Any] = {"model": "mlp", "dataset": "digits", "epochs": 2, "batch_size": 128}


def ran(metrics: list[Any] = METRICS, how: dict[str, Any] | None = None, **mutable: Any) -> Run:
    """A recipe's run, simulated, in two calls of train."""
    recipe = Recipe.of(
        FIXED, {"optimizer": d5.optimizers.SGD(0.3), "warmup_steps": 0} | mutable, metrics, name="again"
    )
    with d5.simulate(recipe.made(), origin=RunOrigin(**recipe.described()), **(how or {})) as group:
        group.train(5, progress=False)
        group.train(4, progress=False)
        close(recipe, group)
    return Run(group.folder)


ASYNCHRONOUS = {
    "how": {
        "network": d5.simulation.UniformLinks(1e-3, 1e6), "compute": d5.simulation.LogNormalTime(1e-3, 1.0)
    },
    "distributed": d5.optimizers.ASGD(), "agents": 3, "servers": d5.Servers(2),
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("how", [{}, ASYNCHRONOUS, {"optimizer": d5.optimizers.Adam(0.01), "seed": 7}])
def test_a_simulated_run_is_repeated_to_the_last_bit(how: dict[str, Any]) -> None:
    """From a copy of its folder in another place; the repetition is a run that keeps the rules, too."""
    run = ran(**how)
    result = rerun(run, quiet=True)
    assert (result.outcome, result.reasons, result.losses) == ("same", (), 0.0)
    assert result.promised and result.bits
    again = Run.find(result.again)
    assert again.row["parameters_sha256"] == run.row["parameters_sha256"]
    assert again.row["steps"] == run.row["steps"] == 9
    assert violations(again) == []


def forged(run: Run, folder: Path) -> Run:
    """A copy in which the losses are said to be half of what they were."""
    shutil.copytree(run.folder, folder / run.name)
    file = folder / run.name / "samples.parquet"
    table = pq.read_table(file)
    values = [
        value / 2 if name == "loss" else value
        for name, value in zip(table["metric"].to_pylist(), table["value"].to_pylist(), strict=True)
    ]
    place = table.schema.get_field_index("value")
    pq.write_table(table.set_column(place, table.schema.field(place), pa.array(values)), file)
    return Run(folder / run.name)


def test_a_run_that_is_not_what_it_says_differs(tmp_path: Path) -> None:
    """Halved losses, which no rule of `check` can tell, do not come out again."""
    run = forged(ran(), tmp_path / "copies")
    result = rerun(run, quiet=True)
    assert (result.outcome, result.bits) == ("differs", False)
    assert "the bits, which are promised, are others" in result.reasons[0]
    assert result.losses == pytest.approx(0.5)


def test_a_rule_of_the_users_own_needs_trust_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here it is repeated; in another home it is refused without."""
    run = ran(distributed=Own)
    assert rerun(run, quiet=True).outcome == "same"
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path / "other"))
    with pytest.raises(ConfigurationError, match=r"is a program, .* --trust"):
        rerun(run, quiet=True)
    assert rerun(run, quiet=True, trust=True).outcome == "same"


class Own(d5.DistributedOptimizer):
    """A rule of the user's own."""

    def step(self, batch: d5.Batch) -> None:
        gradient = self.gradient(batch)
        self.communication.allreduce(gradient)
        self.apply(gradient)


def test_an_experiment_from_elsewhere_writes_nowhere_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints into a folder that its author named are refused; with trust they are written."""
    place = tmp_path / "written"
    run = ran(events=(d5.events.Checkpoint(str(place), every_steps=4),))
    shutil.rmtree(place)
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path / "other"))
    with pytest.raises(ConfigurationError, match="would write checkpoints into"):
        rerun(run, quiet=True)
    assert not place.exists()
    assert rerun(run, quiet=True, trust=True).outcome == "same"
    assert place.exists()


def test_what_cannot_be_repeated_is_an_error() -> None:
    """A run without its experiment, one that went on from a checkpoint, one that was interrupted."""
    run = ran(events=(d5.events.Checkpoint(every_steps=4),))
    with pytest.raises(ConfigurationError, match="cannot be repeated: it went on from a checkpoint"):
        rerun(ran(events=(d5.events.Checkpoint(every_steps=4),), how={"resume": run.folder}), quiet=True)
    (run.folder / EXPERIMENT).unlink()
    with pytest.raises(ConfigurationError, match="kept no experiment"):
        rerun(run, quiet=True)
