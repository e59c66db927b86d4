"""Claims about the repository: links, packages and folders agree, and nothing heavy is imported unasked."""

import ast
import os
import tomllib
import zipfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp
import networkx
import pytest
from ray._private.runtime_env import packaging

from tests.beside_kits import is_there
from tests.conftest import python

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


def test_the_packages_of_a_build_are_the_folders_on_disk() -> None:
    """Every folder with an `__init__.py` is listed once, and nothing else is.

    None is mapped elsewhere: an editable install is then a path, which type checkers follow.
    """
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        table = tomllib.load(file)["tool"]["setuptools"]
    assert table["package-dir"] == {"": "."}
    listed = [name for name in table["packages"] if is_there(name)]
    assert sorted(listed) == sorted(folder_of_packages())


# -- rooms and floors ------------------------------------------------------------------------------------


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


def test_no_files_import_each_other_in_a_circle() -> None:
    """At their top, within functions, and for type checkers alone: who reads one needs nothing that needs it.

    That Python runs the `__init__` of a package before a module in it counts as no import: but for a few,
    which count where they are named, they hold a docstring, or that and the way to their public names.
    """
    found = grimp.build_graph("d5ray", "benchmarks", cache_dir=None)
    graph = networkx.DiGraph(
        (file, other) for file in found.modules for other in found.find_modules_directly_imported_by(file)
    )
    assert [sorted(each) for each in networkx.strongly_connected_components(graph) if len(each) > 1] == []


# -- what an import loads --------------------------------------------------------------------------------


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
    done = python("-X", "importtime", *words)
    loaded = {each.rpartition("|")[2].strip() for each in done.err.splitlines()}
    assert "d5ray" in loaded and loaded & heavy == needed


def test_an_import_loads_no_framework_and_no_ray() -> None:
    """Not even that of the modules for frameworks, nor a recipe's."""
    code = f"""
import sys, d5ray.frameworks.torch, d5ray.frameworks.jax, d5ray.recipes.digits_lenet
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    done = python("-c", code)
    assert (done.out, done.err) == ("[]\n", "")


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
