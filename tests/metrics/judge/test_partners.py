"""Claims about partners: what is proposed can be compared, and says most"""

import json
from pathlib import Path
from typing import Any

import d5ray as d5
from d5ray.dashboards.page import app
from d5ray.dashboards.page.runs import Runs
from d5ray.metrics.judge.comparable import DATA, incomparable
from d5ray.metrics.judge.partners import partners
from d5ray.metrics.record.reader import Run, list_runs
from d5ray.metrics.record.schema import table_of
from d5ray.metrics.record.store import RunWriter
from tests.beside_kits import needs_kit
from tests.conftest import d5ray

FIXED = {"model": "mlp", "dataset": "digits"}


def made(root: Path, name: str, data: str = "ab", fixed: str = "f1", **changes: Any) -> Run:
    """A complete run with this data; fixed: the hash of what is FIXED, empty of a run without a recipe."""
    ended = {"status": changes.pop("status", "completed")}
    address = changes.pop("ray_address", "10.0.0.1:1")
    given: dict[str, Any] = {"optimizer": d5.optimizers.SGD(0.1), "agents": 2, "seed": 1}
    experiment = d5.Experiment(**(FIXED | given | changes))
    writer = RunWriter(root, name)
    writer.open(
        {
            "recipe": "study" if fixed else "experiment", "recipe_hash": fixed, "seed": experiment.seed,
            "fixed": json.dumps(FIXED | {"epochs": fixed} if fixed else {}), "ray_address": address,
            "agents": 2, "experiment": json.dumps(experiment.describe(), sort_keys=True),
        }
    )  # fmt: skip
    facts = [{"run_id": name, "node": "n", "key": DATA, "value": data}]
    writer.write_table("environment", table_of("environment", facts))
    writer.update_run(**ended)
    writer.close()
    return Run(root / name)


def test_partners_are_comparable_and_differ_in_little(tmp_path: Path) -> None:
    """What cannot be compared is left out; one setting comes before two, these before a seed, these before
    another clock."""
    run = made(tmp_path, "run")
    made(tmp_path, "two", batch_size=64, optimizer=d5.optimizers.SGD(0.2))
    made(tmp_path, "one", batch_size=64)
    made(tmp_path, "seed", seed=2)
    made(tmp_path, "simulated", ray_address=None, batch_size=64)
    strangers = [
        made(tmp_path, "failed", status="failed"), made(tmp_path, "data", data="cd", batch_size=64),
        made(tmp_path, "fixed", fixed="f2", batch_size=64),
    ]  # fmt: skip
    found = partners(run, list_runs(tmp_path))
    assert [each.name for each in found] == ["one", "two", "seed", "simulated"]
    assert all(not incomparable([run, each]) for each in found)
    assert not {each.name for each in strangers} & {each.name for each in found}
    assert [each.name for each in partners(run, list_runs(tmp_path), 1)] == ["one"]
    assert partners(strangers[2], list_runs(tmp_path)) == []


def test_runs_without_a_recipe_need_the_same_model(tmp_path: Path) -> None:
    run = made(tmp_path, "run", fixed="")
    made(tmp_path, "lenet", fixed="", model="lenet")
    made(tmp_path, "mlp", fixed="", batch_size=64)
    assert [each.name for each in partners(run, list_runs(tmp_path))] == ["mlp"]


@needs_kit("laboratory")
def test_the_page_and_the_command_propose_them(tmp_path: Path) -> None:
    """The page opens with the first, and says what is shown; the command lists them where B is missing, or
    cannot be compared."""
    root = tmp_path / "runs"
    for name, changes in (("a-run", {}), ("b-other", {"fixed": "f2"}), ("c-partner", {"batch_size": 64})):
        made(root, name, **changes)
    runs = Runs(root)
    try:
        assert runs.partners(runs.get("a-run")) == ["c-partner"]
        told = app._what(runs.get("a-run"), runs.rows()).children
        assert told.startswith(
            "mlp on digits, AllreduceSGD, SGD(0.1), Complete(2), real, seed 1; unlike others: "
        )
    finally:
        runs.close()
    env = {"D5RAY_HOME": str(tmp_path)}
    alone = d5ray("compare", "a-run", env=env)
    assert (alone.code, "d5ray compare a-run c-partner" in alone.out) == (2, True)
    assert d5ray("compare", "a-run", "--json", env=env).json == {"first": "a-run", "partners": ["c-partner"]}
    wrong = d5ray("compare", "a-run", "b-other", env=env)
    assert wrong.code == 2 and "incomparable" in wrong.out and "d5ray compare a-run c-partner" in wrong.out
    assert "no other run can be compared with b-other" in d5ray("compare", "b-other", env=env).out
