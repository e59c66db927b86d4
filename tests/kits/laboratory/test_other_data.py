"""Claims about runs on other data than a recipe's: checks and comparisons see them"""

import json
from pathlib import Path

import pytest

import d5ray as d5
from d5ray.actors.group.run_row import RunOrigin
from d5ray.kits.laboratory.checking.folder import Folder
from d5ray.kits.laboratory.checking.origin import hashes
from d5ray.kits.laboratory.checking.series_checker import violations
from d5ray.kits.laboratory.repeats import seeds
from d5ray.metrics.judge.comparable import DATA, data_of, incomparable
from d5ray.metrics.record.schema import table_of
from d5ray.metrics.record.store import Run, RunWriter
from d5ray.recipes.engine.recipe import Recipe
from tests.beside_kits import needs_kit
from tests.conftest import d5ray
from tests.kits.laboratory.test_seeds import Simulated, only_series
from tests.metrics.judge.test_comparable import FIXED


def test_a_series_on_other_data_breaks_a_rule(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of it, whose data are said to be others."""
    recipe = Recipe.of(
        {"job": Simulated, "hidden": 8}, {}, [d5.metrics.TestAccuracy() >= 0.01], name="simulated"
    )
    seeds.run(recipe, 2, address=None, quiet=True)
    series = only_series()
    assert violations(series) == []
    run = series.runs[1]
    facts = run.tables()["environment"].to_pylist()
    changed = [fact | {"value": "0" * 64} if fact["key"] == DATA else fact for fact in facts]
    RunWriter(run.folder.parent, run.name).write_table("environment", table_of("environment", changed))
    assert any(
        "cannot be compared, since these differ: dataset_sha256" in text for text in violations(series)
    )


@needs_kit("workloads")
@pytest.mark.full
def test_a_files_byte_changes_the_hash_and_compare_says_so(own_home: Path) -> None:
    """A text of one's own, fixed by its path: equal runs while it is the same, incomparable afterwards."""
    text = own_home / "book.txt"
    text.write_bytes(b"It was a bright cold day in April. " * 300)
    fixed = FIXED | {"dataset": "text", "dataset_kwargs": {"paths": str(text), "length": 8}}
    fixed |= {"model": "transformer", "model_kwargs": {"width": 8, "heads": 1, "depth": 1}}

    def read() -> Run:
        recipe = Recipe.of(fixed, {"optimizer": d5.optimizers.SGD(0.1)}, [], name="mine")
        with d5.simulate(recipe.made(), origin=RunOrigin(**recipe.described())) as group:
            group.train(1, progress=False)
        return Run(group.folder)

    one, same = read(), read()
    text.write_bytes(text.read_bytes().replace(b"April", b"april", 1))
    other = read()
    assert one.row["recipe_hash"] == same.row["recipe_hash"] != other.row["recipe_hash"]
    assert incomparable([one, same]) == () and len(incomparable([one, other])) == 1
    home = {"D5RAY_HOME": str(own_home)}
    assert "incomparable" not in d5ray("compare", one.name, same.name, env=home).out
    done = d5ray("compare", one.name, other.name, env=home)
    assert (done.code, "incomparable" in done.out, "dataset_sha256" in done.out) == (2, True, True)
    assert json.loads(other.row["fixed"])[DATA] == data_of(other)[DATA]
    assert list(hashes(Folder(other, other.row, other.tables()))) == []
    forged = dict(other.row) | {key: one.row[key] for key in ("fixed", "recipe_hash")}
    (told,) = hashes(Folder(other, forged, other.tables()))
    assert "the recipe's hash is of other data than were read" in told
