"""Claims about what can be compared: the same FIXED part and the same data, said alike wherever it is said"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.actors.group.run_row import RunOrigin
from d5ray.dashboards.report import writing
from d5ray.errors import ConfigurationError, DataError
from d5ray.identity import checkout
from d5ray.metrics.judge.comparable import DATA, data_of, incomparable
from d5ray.metrics.judge.comparison import compare
from d5ray.metrics.record.reader import Run
from d5ray.recipes.engine import library
from d5ray.recipes.engine.recipe import Recipe
from tests.beside_kits import needs_kit, there, with_kits
from tests.conftest import d5ray

pytestmark = pytest.mark.usefixtures("own_home")
FIXED: dict[str, Any] = {"model": "mlp", "epochs": 1, "batch_size": 512}
DIGITS = d5.datasets.load_dataset("digits")


def ran(**data: Any) -> Run:
    """A run of a recipe that leaves the data open."""
    recipe = Recipe.of(FIXED, {"optimizer": d5.optimizers.SGD(0.1)} | data, [], name="open")
    with d5.simulate(recipe.made(), origin=RunOrigin(**recipe.described())) as group:
        group.train(1, progress=False)
    return Run(group.folder)


def test_the_hash_of_the_data_is_that_of_the_arrays() -> None:
    """However they were given: by name, or as arrays; another split of the same digits is other data."""
    named, given = ran(dataset="digits"), ran(dataset=DIGITS)
    other = ran(dataset="digits", dataset_kwargs={"split_seed": 5})
    assert data_of(named) == data_of(given) == {DATA: DIGITS.fingerprint}
    assert data_of(other) != data_of(named)
    assert incomparable([named, given]) == ()


@pytest.mark.full
def test_other_data_have_another_hash_and_are_incomparable(own_home: Path) -> None:
    """Also where FIXED leaves them open. The function says why; what compares and reports says the same."""
    one, other = ran(dataset="digits"), ran(dataset="digits", dataset_kwargs={"split_seed": 5})
    assert one.row["recipe_hash"] != other.row["recipe_hash"]
    assert json.loads(one.row["fixed"]) == json.loads(other.row["fixed"]) | {DATA: data_of(one)[DATA]}
    (reason,) = incomparable([one, other])
    assert reason.startswith("dataset_sha256: ") and one.name in reason and other.name in reason
    assert compare([one], [other]).incomparable == (reason,)
    if there("laboratory"):
        done = d5ray("compare", one.name, other.name, env={"D5RAY_HOME": str(own_home)})
        assert (done.code, "incomparable" in done.out, "dataset_sha256" in done.out) == (2, True, True)
    writing.write([one.name, other.name], own_home / "report.md")
    assert "not comparable" in (own_home / "report.md").read_text()


def test_the_page_says_the_same() -> None:
    """Side by side, two runs on other data are said to be no match, with the reason."""
    from d5ray.dashboards.page import live  # noqa: PLC0415 - an extra
    from d5ray.dashboards.page.charts import ChartOptions  # noqa: PLC0415
    from d5ray.dashboards.page.runs import Runs  # noqa: PLC0415

    one, other, same = ran(dataset="digits"), ran(dataset=noisy()), ran(dataset=DIGITS)
    runs = Runs(one.folder.parent)
    try:
        told = str(live.live("beside", runs.get(one.name), ChartOptions(others=(runs.get(other.name),))))
        agree = str(live.live("beside", runs.get(one.name), ChartOptions(others=(runs.get(same.name),))))
    finally:
        runs.close()
    assert "They cannot be compared" in told and "dataset_sha256" in told
    assert "they can be compared" in agree


def noisy() -> d5.Dataset:
    inputs = DIGITS.train.inputs.copy()
    inputs[0, 0, 0, 0] += np.float32(1e-6)
    return d5.Dataset("digits", d5.datasets.Split(inputs, DIGITS.train.labels), DIGITS.test, DIGITS.classes)


@needs_kit("workloads")
def test_data_that_fixed_tells_are_not_read_for_the_hash() -> None:
    """Made data by their options; files by what they hold, and a file that lacks is said at once."""
    made = Recipe.of(FIXED | {"dataset": "synthetic"}, {"optimizer": d5.optimizers.SGD(0.1)}, [], name="made")
    assert made.data == {} and made.hash == made.fixed_hash
    files = {"dataset": "text", "dataset_kwargs": {"paths": "/nowhere/at/all"}}
    lacking = Recipe.of(FIXED | files, {"optimizer": d5.optimizers.SGD(0.1)}, [], name="lacking")
    assert lacking.fixed_hash != made.fixed_hash
    with pytest.raises(DataError, match="no file fits '/nowhere/at/all'"):
        lacking.described()


@pytest.mark.parametrize("name", with_kits([*library.shipped(), *checkout.names()]))
def test_a_shipped_recipe_fixes_its_data(name: str) -> None:
    """No part of the data can be set: another set, an option of it, or its options as a whole."""
    module = library.own(name)
    assert not [key for key in module.MUTABLE if key.partition(".")[0].partition("_")[0] == "dataset"]
    if "dataset" not in module.FIXED:
        return
    for key, value in (("dataset", "digits"), ("dataset.noise", 0), ("dataset_kwargs", {"noise": 0})):
        with pytest.raises(ConfigurationError, match=r"is FIXED|has no such key"):
            Recipe.of(module.FIXED, module.MUTABLE, module.METRICS, name=name, overrides={key: value})


@needs_kit("workloads")
def test_the_recipes_on_published_data_are_recipes() -> None:
    """What the docstrings of the workloads show: a recipe of three lines, which has another hash."""
    for name, change in (
        ("keyword_spotting", {"dataset": "speech_commands"}),
        ("shapes_detection", {"dataset": "coco", "dataset_kwargs": {"size": 64}}),
        ("text_transformer", {"dataset": "wikitext", "dataset_kwargs": {"length": 64}}),
        ("click_ranking", {"dataset": "criteo", "dataset_kwargs": {"buckets": 20_000, "rows": 100}}),
    ):
        module = library.load(name)
        own = Recipe.of(module.FIXED | change, module.MUTABLE, module.METRICS, name="mine")
        assert own.made().dataset == change["dataset"]
        assert own.fixed_hash != Recipe.of(module.FIXED, module.MUTABLE, module.METRICS, name=name).fixed_hash
