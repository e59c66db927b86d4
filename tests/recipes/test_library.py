"""Claims about finding recipes: by name, by file, by folder; benchmarks are there in a checkout alone"""

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.recording_speed import recipe as recording_speed
from d5ray.dashboards.terminal.recipe_list import TITLES
from d5ray.errors import ConfigurationError
from d5ray.identity import checkout
from d5ray.recipes import command as of_users
from d5ray.recipes.engine import command, library
from d5ray.recipes.engine.recipe import Recipe
from tests.conftest import REPOSITORY, d5ray
from tests.patience import patience

HASHES: dict[str, str] = json.loads((Path(__file__).parent / "hashes.json").read_text())
KNOWN = [*library.shipped(), *checkout.names()]
SHORT = ("--set", "steps=500", "--set", "pairs=1", "--set", "seconds=0.1", "--json")
OWN = "FIXED, MUTABLE, METRICS = {'epochs': EPOCHS}, {}, []"


@pytest.fixture(autouse=True)
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test loads from its own folder, and where it looked for it, are gone after it."""
    names, paths = set(sys.modules), list(sys.path)
    monkeypatch.setenv("PYTHONPATH", os.environ["PYTHONPATH"])
    yield
    for name in set(sys.modules) - names:
        if name.startswith("mine"):
            del sys.modules[name]
    sys.path[:] = paths


def package(folder: Path, name: str) -> Path:
    """A recipe of the user's own, in a package with a module beside it."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").touch()
    (folder / name / "numbers_of_it.py").write_text("EPOCHS = 17")
    (folder / name / "recipe.py").write_text(f"from {name}.numbers_of_it import EPOCHS\n{OWN}")
    return folder / name


# -- what there is ---------------------------------------------------------------------------------------


def test_every_recipe_says_what_it_is_for_and_how_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that ship in three groups, the benchmarks in one of their own."""
    groups = {listed.group for listed in library.shipped().values()}
    assert groups == set(TITLES) - {"benchmarks"}
    monkeypatch.chdir(REPOSITORY)
    assert {listed.group for listed in library.benchmarks().values()} == {"benchmarks"}
    every = library.shipped() | library.benchmarks()
    assert all(listed.takes and listed.about for listed in every.values())
    assert sorted(Path(name).name for name in every) == sorted(KNOWN)


@pytest.mark.every_case
@pytest.mark.parametrize("name", sorted(HASHES))
def test_a_recipes_hash_is_what_it_was(name: str) -> None:
    """Runs of today can be compared with those from before its modules moved."""
    module = library.own(name)
    assert Recipe.of(module.FIXED, module.MUTABLE, module.METRICS, name=name).fixed_hash == HASHES[name]


def test_every_recipes_hash_is_known() -> None:
    assert sorted(HASHES) == sorted(KNOWN)


def test_the_list_shows_benchmarks_apart_and_in_the_checkout_alone(tmp_path: Path) -> None:
    """By groups below their titles; elsewhere only what ships."""
    here, elsewhere = d5ray("list", cwd=REPOSITORY), d5ray("list", cwd=tmp_path)
    assert here.out.startswith(elsewhere.out)
    titles = [line for line in here.out.splitlines() if line in TITLES.values()]
    assert titles == list(TITLES.values())
    (line,) = (line for line in here.out.splitlines() if line.startswith("benchmarks/allreduce_speed "))
    assert "5 minutes" in line and "How quickly agents sum arrays" in line
    assert "benchmarks" not in elsewhere.out
    assert set(d5ray("list", "--json", cwd=tmp_path).json) == set(library.shipped())


# -- folders ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["benchmarks/recording_speed", "benchmarks/recording_speed/recipe.py"])
def test_a_benchmark_is_the_module_of_its_package(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its folder or its file, from wherever: no class is loaded twice, and the name is the folder's."""
    monkeypatch.chdir(REPOSITORY)
    assert library.load(given) is recording_speed
    assert library.name_of(Path(given)) == "recording_speed"
    monkeypatch.chdir("/")
    assert library.load(str(REPOSITORY / given)) is recording_speed


def test_a_folder_of_the_users_own_is_a_recipe(tmp_path: Path) -> None:
    """It imports its neighbours by the name of its package; the recipe has the folder's name."""
    folder = package(tmp_path, "mine_in_a_folder")
    module = library.load(f"{folder}/")
    assert (module.__name__, module.FIXED) == ("mine_in_a_folder.recipe", {"epochs": 17})
    assert library.name_of(folder) == library.name_of(folder / "recipe.py") == "mine_in_a_folder"


def test_a_file_called_recipe_without_a_package_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "recipe.py").touch()
    assert library.name_of(tmp_path / "recipe.py") == "recipe"


def test_another_package_of_the_same_name_is_told(tmp_path: Path) -> None:
    """The one that was imported before stays; the error says where each of them is."""
    library.load(str(package(tmp_path / "first", "mine_twice")))
    second = package(tmp_path / "second", "mine_twice")
    with pytest.raises(ConfigurationError, match=r"second.*mine_twice\.recipe was imported from .*first"):
        library.load(str(second))


def test_a_wrong_folder_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing in it; or the one that may be meant."""
    with pytest.raises(ConfigurationError, match=r"is a folder without recipe\.py: give one that has it"):
        library.load(str(tmp_path))
    (tmp_path / "recipe.py").write_text("EPOCHS = 1\n" + OWN)
    with pytest.raises(ConfigurationError, match=r"is no package: put an empty __init__\.py beside"):
        library.load(str(tmp_path))
    monkeypatch.chdir(REPOSITORY)
    with pytest.raises(
        ConfigurationError,
        match=r"no recipe file benchmarks/recording_sped.*did you mean 'benchmarks/recording_speed'",
    ):
        library.load("benchmarks/recording_sped")


@pytest.mark.parametrize("name", checkout.names())
def test_the_name_that_a_benchmark_had_says_where_it_went(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is written in the checkout's folder, and elsewhere."""
    monkeypatch.chdir(REPOSITORY)
    with pytest.raises(ConfigurationError, match=f"is a benchmark now: d5ray run benchmarks/{name}$"):
        library.load(name)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=f"d5ray run {REPOSITORY}/benchmarks/{name}$"):
        library.load(name)


# -- programs --------------------------------------------------------------------------------------------


def test_what_recipe_files_of_today_import_is_there() -> None:
    """`from d5ray.recipes.command import main`."""
    assert of_users.main is command.main


@pytest.mark.full
def test_a_benchmark_runs_by_its_folder_and_as_a_program_and_is_checked(tmp_path: Path) -> None:
    """Under one name and hash, from any folder; where there is no checkout, `check` says what it lacks."""
    home = {"D5RAY_HOME": str(tmp_path / "home")}
    folder = str(REPOSITORY / "benchmarks" / "recording_speed")
    ran = d5ray("run", folder, *SHORT, env=home, cwd=tmp_path)
    assert (ran.code, ran.json["recipe"]) == (2, "recording_speed"), ran
    command_line = [sys.executable, "-m", "benchmarks.recording_speed.recipe", *SHORT]
    program = subprocess.run(
        command_line, cwd=REPOSITORY, env=os.environ | home, capture_output=True, text=True, check=False
    )
    told = json.loads(program.stdout)
    assert (told["recipe"], told["recipe_hash"]) == ("recording_speed", ran.json["recipe_hash"])
    here = d5ray("check", ran.json["run"], "--json", env=home)
    assert (here.code, here.json["violations"], len(here.json["unchecked"])) == (0, [], 1), here
    shutil.copytree(REPOSITORY / "d5ray", tmp_path / "installed" / "d5ray")  # links become folders
    alone = d5ray(
        "check", ran.json["run"], "--json",
        env=home | {"PYTHONPATH": str(tmp_path / "installed")}, cwd=tmp_path,
    )  # fmt: skip
    assert (alone.code, alone.json["violations"]) == (0, []), alone
    assert len([text for text in alone.json["unchecked"] if "of d5ray's benchmarks, which only" in text]) == 3


@pytest.mark.full
def test_without_a_checkout_there_are_no_benchmarks(tmp_path: Path) -> None:
    """As in a wheel: the name is unknown there, and nothing else is missed."""
    shutil.copytree(REPOSITORY / "d5ray", tmp_path / "d5ray")  # links become folders
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").touch()  # a package of somebody else's beside it
    alone = {"PYTHONPATH": str(tmp_path)}
    listed = d5ray("list", "--json", env=alone, cwd=tmp_path)
    assert set(listed.json) == set(library.shipped())
    asked = d5ray("run", "allreduce_speed", env=alone, cwd=tmp_path)
    assert asked.code == 3 and "there is no recipe named 'allreduce_speed'" in asked.err
    asked_for = "d5ray.metrics.judge.stored_criteria"
    code = f"import d5ray, {asked_for} as k; print(d5ray.__file__, len(k.known_metrics()))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | alone, cwd=tmp_path, capture_output=True, text=True,
        timeout=patience(60), check=True,
    )  # fmt: skip
    where, count = done.stdout.split()
    assert Path(where).is_relative_to(tmp_path) and int(count) > 30


def test_the_metrics_of_benchmarks_are_found_in_the_checkout() -> None:
    """Every module `metrics` of a benchmark, and no package that has the name of theirs."""
    found = {module.__name__ for module in checkout.parts("metrics")}
    assert found == {
        f"benchmarks.{path.parent.name}.metrics" for path in (REPOSITORY / "benchmarks").glob("*/metrics.py")
    }
    assert all(importlib.import_module(name) for name in found)
    assert not checkout.is_benchmark("benchmarks_of_mine") and not checkout.is_benchmark("d5ray.experiment")
