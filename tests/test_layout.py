"""Claims about the repository: links, packages and folders agree, and nothing heavy is imported unasked."""

import ast
import importlib
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp
import networkx
import onnx.defs
import pytest
from ray._private.runtime_env import packaging

from d5ray.recipes.engine import library
from tests.house import PRODUCT, TABLE, House, imported_of
from tests.patience import patience

REPOSITORY = Path(__file__).parent.parent
LINKED = ("actors", "dashboards", "ops", "recipes")
HEAVY = ("torch", "ray", "tensorflow", "jax")


def folders(top: Path) -> Iterator[Path]:
    """The folder and those in it, through no link."""
    for path, inner, _ in os.walk(top, followlinks=False):
        inner[:] = [name for name in inner if name != "__pycache__"]
        yield Path(path)


def folder_of_packages() -> dict[str, Path]:
    """Every folder with an `__init__.py` that a program imports, under its dotted name."""
    tops = {"d5ray": REPOSITORY / "d5ray"} | {f"d5ray.{name}": REPOSITORY / name for name in LINKED}
    found = {}
    for name, top in tops.items():
        for folder in folders(top):
            if (folder / "__init__.py").exists():
                found[".".join([name, *folder.relative_to(top).parts])] = folder
    return found


def setuptools_table() -> dict[str, object]:
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        table = tomllib.load(file)["tool"]["setuptools"]
    assert isinstance(table, dict)
    return table


@cache
def sources(*tops: str) -> dict[str, ast.Module]:
    """The parsed files under these folders of the repository, by their path in it."""
    found = {}
    for top in tops:
        for folder in folders(REPOSITORY / top):
            for file in folder.glob("*.py"):
                found[file.relative_to(REPOSITORY).as_posix()] = ast.parse(file.read_text(encoding="utf-8"))
    return found


# -- folders, links, packages ----------------------------------------------------------------------------


def test_the_links_of_the_package_are_the_four_folders_at_the_top() -> None:
    """`d5ray/actors -> ../actors` and its like: relative, none more, none less."""
    links = {
        entry.name: entry.readlink().as_posix()
        for entry in (REPOSITORY / "d5ray").iterdir()
        if entry.is_symlink()
    }
    assert links == {name: f"../{name}" for name in LINKED}
    assert all((REPOSITORY / name).is_dir() and not (REPOSITORY / name).is_symlink() for name in LINKED)


def test_the_packages_of_a_build_are_the_folders_on_disk() -> None:
    """Every folder with an `__init__.py` is listed once, and nothing else is.

    None is mapped elsewhere: an editable install is then a path, which type checkers follow.
    """
    table = setuptools_table()
    assert table["package-dir"] == {"": "."}
    assert isinstance(table["packages"], list)
    assert sorted(table["packages"]) == sorted(folder_of_packages())


@pytest.mark.parametrize("name", sorted(folder_of_packages()))
def test_a_package_is_imported_from_its_folder(name: str) -> None:
    """What Python imports as `d5ray.actors` lies in `actors`."""
    module = importlib.import_module(name)
    assert module.__file__ is not None
    assert Path(module.__file__).resolve().parent == folder_of_packages()[name].resolve()


# -- what measures d5ray stands apart --------------------------------------------------------------------


def test_every_benchmark_is_a_folder_with_a_recipe() -> None:
    """And a package, so that `d5ray run` imports it by its name."""
    inner = [path for path in (REPOSITORY / "benchmarks").iterdir() if any(path.glob("*.py"))]
    assert len(inner) == 11
    assert all((path / "recipe.py").is_file() and (path / "__init__.py").is_file() for path in inner)


# -- rooms and floors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(set(folder_of_packages()) - {"d5ray.recipes"}))
def test_a_package_with_packages_has_few_files_beside_them(name: str) -> None:
    """At most five, but for those that Python itself asks for. `recipes` has a file for each recipe."""
    folder = folder_of_packages()[name]
    inner = [path for path in folder.iterdir() if (path / "__init__.py").exists()]
    loose = [path.name for path in folder.glob("*.py") if not path.name.startswith("__")]
    assert not inner or len(loose) <= 5, loose


def test_beside_the_recipes_stand_two_files() -> None:
    """`main` for the users' own recipe files, and the networks that recipes bring."""
    loose = {path.stem for path in (REPOSITORY / "recipes").glob("*.py")} - {"__init__"}
    assert loose - set(library.shipped()) == {"command", "models"}


def floors() -> list[list[str]]:
    """The floors of import-linter's contract, from the top; several on one are siblings."""
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [floor.split(" : ") for floor in layers]


def test_contributors_read_the_floors_that_are_kept() -> None:
    """The list of CONTRIBUTING is the contract's, a floor a line with what it is; indented lines go on."""
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    lines = text.partition("## The floors")[2].split("```")[1].strip().replace("\n  ", " ").splitlines()
    assert [names.split() for names, _, said in (line.partition("#") for line in lines) if said] == floors()


@pytest.fixture(scope="module")
def imports() -> networkx.DiGraph:
    """Which file imports which: at its top, within functions, and for type checkers alone.

    That Python runs the `__init__` of a package before a module in it counts as no import: but for a few,
    which count where they are named, they hold a docstring, or that and the way to their public names.
    """
    found = grimp.build_graph("d5ray", "benchmarks", cache_dir=None)
    return networkx.DiGraph(
        (file, other) for file in found.modules for other in found.find_modules_directly_imported_by(file)
    )


def circles(graph: networkx.DiGraph) -> list[list[str]]:
    """Files of which each needs all others."""
    return [sorted(found) for found in networkx.strongly_connected_components(graph) if len(found) > 1]


def test_no_files_import_each_other_in_a_circle(imports: networkx.DiGraph) -> None:
    """Who reads one needs what stands below it, and nothing that needs it."""
    assert circles(imports) == []


@pytest.mark.parametrize(
    ("file", "other"),
    [
        ("d5ray.experiment", "d5ray.errors"),
        ("d5ray.metrics.record.reader", "d5ray.metrics.queries.locations"),  # within a function
        ("d5ray.actors.metrics.exporter", "d5ray.metrics.record.recorder"),  # for type checkers
    ],
)
def test_an_import_of_every_kind_would_close_a_circle(
    file: str, other: str, imports: networkx.DiGraph
) -> None:
    """Each is in the graph, and with the way back there is a circle."""
    closed = imports.copy()
    closed.add_edge(other, file)
    (found,) = circles(closed)
    assert imports.has_edge(file, other) and {file, other} <= set(found)


def test_rooms_and_figures_over_their_budgets_are_named() -> None:
    """All where nobody may have anything; their lines are those of the files, each in one room."""
    table = (REPOSITORY / TABLE).read_text(encoding="utf-8")
    house = House(re.sub(r"budget = .*", "budget = [0, 0]", re.sub(r'" = \d+', '" = 0', table)))
    wanted = [f"{room.name} has {n:,} lines" for room, size in house.sizes.items() for n in size[:2] if n]
    wanted += [f"{count:,} {name}" for name, count in house.figures.items()]
    assert all(line.startswith(want) for line, want in zip(house.over(), wanted, strict=True))
    files = (folder.glob("*.py*") for top in (*PRODUCT, "tests") for folder in folders(REPOSITORY / top))
    lines = sum(path.read_bytes().count(b"\n") for inner in files for path in inner)
    assert sum(size[0] + size[1] for size in house.sizes.values()) == lines


def test_the_contract_of_the_rooms_misses_no_import() -> None:
    """What it reads of a file has all that Python would import; docstrings may show more."""
    for name, tree in sources("d5ray", *LINKED).items():
        found = imported_of((REPOSITORY / name).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("d5ray"):
                assert {(node.module, alias.name) for alias in node.names} <= found, name


# -- one name, one class ---------------------------------------------------------------------------------

TWICE = {  # the classes of one name that may stand several times, and why
    "Cell": "a recurrent cell, under each framework",
    "Reduction": "a reducing operator under each framework, and the exchange that is public by this name",
    "Windows": "the windows of a pooling: their geometry, and its use by PyTorch",
}


def test_no_two_classes_have_one_public_name() -> None:
    """But for operators of ONNX, which have their names there: a layer or a compressor may have the same."""
    found = Counter(
        node.name
        for name, tree in sources("d5ray", *LINKED).items()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        if not (name.startswith("ops/") and onnx.defs.has(node.name))
    )
    assert {name for name, count in found.items() if count > 1} <= set(TWICE)


# -- what an import loads --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "module",
    [
        "d5ray",
        "d5ray.__main__",
        "d5ray.frameworks.torch",
        "d5ray.frameworks.jax",
        "d5ray.recipes.digits_lenet",
    ],
)
def test_an_import_loads_no_framework_and_no_ray(module: str) -> None:
    """A fresh process has the module, and none of torch, ray, tensorflow and jax."""
    code = (
        f"import sys, {module}; "
        f"print({module!r} in sys.modules, [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=patience(60))
    assert (done.stdout, done.stderr) == ("True []\n", "")


HELP = "import d5ray.cli.app as c; [c.app([name, '--help'], standalone_mode=False) for name in c.COMMANDS]"
SHOWN: dict[str, tuple[tuple[str, ...], set[str]]] = {  # the words after `python`, and what they need
    "import d5ray": (("-c", "import d5ray"), set()),
    "d5ray --help": (("-m", "d5ray", "--help"), set()),
    "d5ray COMMAND --help": (("-c", HELP), set()),
    "d5ray list": (("-m", "d5ray", "list"), {"rich"}),
}


@pytest.mark.parametrize(("words", "needed"), SHOWN.values(), ids=SHOWN)
def test_a_text_is_shown_without_what_computes(words: tuple[str, ...], needed: set[str]) -> None:
    """Neither the package, nor the help of any command, nor the list of recipes loads one of these."""
    heavy = {*HEAVY, "numpy", "pyarrow", "pandas", "scipy", "duckdb", "onnx", "networkx", "plotly", "rich"}
    line = [sys.executable, "-X", "importtime", *words]
    done = subprocess.run(line, capture_output=True, text=True, timeout=patience(60), check=True)
    loaded = {each.rpartition("|")[2].strip() for each in done.stderr.splitlines()}
    assert "d5ray" in loaded and loaded & heavy == needed


def test_a_job_of_the_checkout_gets_every_file_once(tmp_path: Path) -> None:
    """As Ray packs a `--working-dir`: it follows links, so where they lead to is left out."""
    package = tmp_path / "package.zip"
    packaging._zip_files(str(REPOSITORY), [], str(package), include_gitignore=True)
    with zipfile.ZipFile(package) as shipped:
        names = {each.filename for each in shipped.infolist() if not each.is_dir()}
        contents = Counter(shipped.read(name) for name in names if not name.endswith("__init__.py"))
    assert {f"d5ray/{name}/__init__.py" for name in LINKED} <= names
    assert "pyproject.toml" in names and "benchmarks/trainers.py" in names
    assert [text for text, count in contents.items() if text and count > 1] == []
