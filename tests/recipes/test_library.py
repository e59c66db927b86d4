"""Claims about finding recipes: by name, by file, by folder; benchmarks are there in a checkout alone"""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from d5ray.dashboards.terminal.recipe_list import TITLES
from d5ray.errors import ConfigurationError
from d5ray.identity import checkout
from d5ray.recipes.engine import library
from d5ray.recipes.engine.recipe import Recipe
from tests.beside_kits import needs_kit, with_kits
from tests.conftest import REPOSITORY, d5ray

HASHES: dict[str, str] = json.loads((Path(__file__).parent / "hashes.json").read_text())
KNOWN = [*library.shipped(), *checkout.names()]
SHORT = ("--set", "steps=500", "--set", "pairs=1", "--set", "seconds=0.1", "--json")
pytestmark = pytest.mark.usefixtures("modules")
OWN = "FIXED, MUTABLE, METRICS = {'epochs': EPOCHS}, {}, []"


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
    assert sorted(Path(name).name for name in every) == sorted(KNOWN) == sorted(HASHES)


@pytest.mark.every_case
@pytest.mark.parametrize("name", with_kits(sorted(HASHES)))
def test_a_recipes_hash_is_what_it_was(name: str) -> None:
    """Runs of today can be compared with those from before its modules moved."""
    module = library.own(name)
    assert Recipe.of(module.FIXED, module.MUTABLE, module.METRICS, name=name).fixed_hash == HASHES[name]


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


@needs_kit("laboratory")
@pytest.mark.parametrize("given", ["benchmarks/recording_speed", "benchmarks/recording_speed/recipe.py"])
def test_a_benchmark_is_the_module_of_its_package(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its folder or its file, from wherever: no class is loaded twice, and the name is the folder's."""
    monkeypatch.chdir(REPOSITORY)
    recording_speed = library.load(given)
    assert recording_speed is importlib.import_module("benchmarks.recording_speed.recipe")
    assert library.name_of(Path(given)) == "recording_speed"
    monkeypatch.chdir("/")
    assert library.load(str(REPOSITORY / given)) is recording_speed


def test_a_folder_of_the_users_own_is_a_recipe(tmp_path: Path) -> None:
    """It imports its neighbours by the name of its package; the recipe has the folder's name."""
    folder = package(tmp_path, "mine_in_a_folder")
    module = library.load(f"{folder}/")
    assert (module.__name__, module.FIXED) == ("mine_in_a_folder.recipe", {"epochs": 17})
    assert library.name_of(folder) == library.name_of(folder / "recipe.py") == "mine_in_a_folder"


def test_another_package_of_the_same_name_is_told(tmp_path: Path) -> None:
    """The one that was imported before stays; the error says where each of them is."""
    library.load(str(package(tmp_path / "first", "mine_twice")))
    second = package(tmp_path / "second", "mine_twice")
    with pytest.raises(ConfigurationError, match=r"second.*mine_twice\.recipe was imported from .*first"):
        library.load(str(second))


def test_a_file_may_import_what_stands_beside_it(tmp_path: Path) -> None:
    """Its folder is on the path."""
    (tmp_path / "beside_the_recipe.py").write_text("EPOCHS = 17")
    file = tmp_path / "with_import.py"
    file.write_text(f"from beside_the_recipe import EPOCHS\n{OWN}")
    assert library.load(str(file)).FIXED == {"epochs": 17}


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


# -- files -------------------------------------------------------------------------------------------------

WRONG_FILES: dict[str, tuple[str | None, tuple[str, ...]]] = {
    "missing": (None, ("there is no recipe file", "missing.py")),
    "empty": ("", ("has no FIXED, MUTABLE, METRICS",)),
    "partial": ("FIXED = {}\nMETRICS = []", ("has no MUTABLE: a recipe defines FIXED, MUTABLE, METRICS",)),
    "syntax": ("FIXED = {", ("cannot be loaded", "SyntaxError", "syntax.py")),
    "raising": (
        "FIXED = 1 / 0",
        ("cannot be loaded", "ZeroDivisionError", "raising.py, line 1", "traceback is in"),
    ),
    "importing": ("import no_such_module", ("cannot be loaded", "No module named 'no_such_module'")),
    "wrong_criterion": (
        "import d5ray as d5\nMETRICS = [d5.metrics.TestAccuracy() <= 0.5]",
        ("wrong_criterion.py", "points the wrong way"),
    ),
}


@pytest.mark.parametrize("name", WRONG_FILES)
def test_a_file_that_is_no_recipe_is_refused(name: str, tmp_path: Path) -> None:
    """What is wrong with it, where, and in the user's own line."""
    text, message = WRONG_FILES[name]
    file = tmp_path / f"{name}.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        library.load(str(file))
    for words in message:
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "digits_lente",
            r"no recipe named 'digits_lente': did you mean 'digits_lenet'\?.*path/to/recipe\.py",
        ),
        ("recipe", "no recipe named 'recipe'"),
        ("allreduce_speed", "is a benchmark now: d5ray run .*benchmarks/allreduce_speed"),
        ("folder/", "there is no recipe file folder"),
    ],
)
def test_an_unknown_recipe_is_refused(name: str, message: str) -> None:
    """With the nearest name; what is not a recipe among d5ray's own files is none."""
    with pytest.raises(ConfigurationError, match=message):
        library.load(name)


# -- programs --------------------------------------------------------------------------------------------


@needs_kit("laboratory")
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
