"""The README is one screen and true: example, query, commands, links, folders, counts"""

import os
import re
import shlex
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import d5ray as d5
from d5ray.identity import checkout
from d5ray.names import namespaces
from d5ray.recipes.engine import library
from d5ray.recipes.engine.parsing import texts
from d5ray.recipes.engine.recipe import Recipe
from docs.tree import FOLDERS
from tests.conftest import Head, d5ray, python, ran
from tests.docs.page import DOCS, REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
MOST_BYTES, MOST_LINES, MOST_PICTURE_BYTES = 10_000, 200, 150_000
LINK = re.compile(r"\]\((?!https?:)(?P<path>[^)#]+)(?:#(?P<section>[\w-]+))?\)")
PAGES = [REPOSITORY / "README.md", REPOSITORY / "benchmarks" / "RESULTS.md", *sorted(DOCS.rglob("*.md"))]


def test_it_is_one_screen() -> None:
    """Of bytes, of lines, and of what its picture weighs."""
    assert len(README.encode()) <= MOST_BYTES
    assert len(README.splitlines()) <= MOST_LINES
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README)
    assert pictures
    assert all((REPOSITORY / picture).stat().st_size <= MOST_PICTURE_BYTES for picture in pictures)


def test_its_links_lead_somewhere() -> None:
    """To files that exist, and to sections that these have; every lesson is one of them."""
    for link in LINK.finditer(README):
        path = REPOSITORY / link["path"]
        assert path.exists(), link["path"]
        if link["section"]:
            titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert link["section"] in [title.lower().replace(" ", "-") for title in titles]


def test_its_folders_are_the_folders() -> None:
    """All that stand at the top, and each of those below that it names."""
    text = README.partition("## Where things are\n```\n")[2].partition("```")[0]
    top, named = "", []
    for line in text.splitlines():
        name = line.split()[0]
        top = name if not line.startswith(" ") else top
        named.append(Path(top if name == top else f"{top}{name}"))
    assert all((REPOSITORY / path).exists() for path in named), named
    assert {path.parts[0] for path in named} >= {*FOLDERS, "docs"}


def test_it_counts_right() -> None:
    """Update rules, and distributed optimizers."""
    public = [namespaces.public(name) for name in namespaces.places()]
    classes = [each for each in public if isinstance(each, type)]
    ways = [each for each in classes if issubclass(each, d5.DistributedOptimizer)]
    rules = [each for each in classes if each.__module__.startswith("d5ray.training.optimizers")]
    around = {
        d5.Optimizer,
        d5.optimizers.Scheduled,
        d5.optimizers.WeightDecay,
        d5.optimizers.ClipNorm,
        d5.optimizers.ClipValue,
    }
    rules = [each for each in rules if issubclass(each, d5.Optimizer) and each not in around]
    rules = [
        each
        for each in rules
        if not issubclass(each, d5.optimizers.NativeOptimizer | d5.optimizers.ThreeStepOptimizer)
    ]
    assert f"{len(rules)} update rules and {len(ways) - 1} distributed optimizers" in README


def test_every_benchmark_has_its_figures_and_every_command_its_recipe() -> None:
    """In RESULTS.md; and whatever pages say that one runs is there to be run."""
    named = re.compile(r"d5ray run ((?:benchmarks/)?[a-z][a-z0-9_]+)(?![\w./])")
    results = (REPOSITORY / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    benchmarks = {f"benchmarks/{name}" for name in checkout.names()}
    assert {name for name in named.findall(results) if "/" in name} == benchmarks
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    assert {name for text in texts for name in named.findall(text)} <= benchmarks | set(library.shipped())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_command_sets_fits_its_recipe(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every `d5ray run RECIPE --set …` of a page makes what would run, agents, topology and all."""
    monkeypatch.chdir(REPOSITORY)
    known = {*library.shipped(), *(f"benchmarks/{name}" for name in checkout.names())}
    text = page.read_text(encoding="utf-8").replace("\\\n", "")
    for line in re.findall(r"d5ray run [^`\n]*--set[^`\n]*", text):
        _, _, name, *words = shlex.split(line, comments=True)
        if name in known:
            module = library.load(name)
            given = [after for word, after in pairwise(words) if word == "--set"]
            overrides = dict(texts.parsed(each) for each in given)
            Recipe.of(module.FIXED, module.MUTABLE, module.METRICS, name=name, overrides=overrides).made()


@pytest.mark.parametrize("how", ["simulate", pytest.param("launch", marks=pytest.mark.full)])
def test_the_example_is_short_and_its_run_answers_the_query(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An own distributed optimizer, a script in a folder that is no package; then SQL on what it measured.

    By actors, as it stands, and on the virtual clock, as the line below it says.
    """
    assert "`d5.simulate(experiment)` runs the same" in README
    code = README.partition("<!-- example -->\n```python\n")[2].partition("```")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    script = tmp_path / "mine.py"
    script.write_text(code.replace("d5.launch(", f"d5.{how}("))
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path / "home"))
    assert float(python(script, cwd=tmp_path, seconds=120).out.splitlines()[-1]) > 0.9
    query = README.partition("<!-- query -->\n```\n")[2].partition("```")[0]
    program, *words = shlex.split(query)
    assert program == "d5ray"
    answer = d5ray(*words)
    assert answer.code == 0, answer.err
    assert {"loss", "step_time", "exchange_time"} <= {
        line.split()[0] for line in answer.out.splitlines() if line
    }


@pytest.mark.full
def test_the_job_is_submitted(head: Head, tmp_path: Path) -> None:
    """The line as it stands, but for the address and where the head finds Python: the verdict comes back."""
    (line,) = re.findall(r"^ray job submit .*$", README, re.MULTILINE)
    assert "http://127.0.0.1:8265" in line
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = ran(
        *shlex.split(line.replace("http://127.0.0.1:8265", head.dashboard).replace("python", sys.executable)),
        cwd=REPOSITORY, env={"PATH": path, "D5RAY_HOME": str(tmp_path)}, seconds=200, fails=True,
    )  # fmt: skip
    assert "d5ray  digits_lenet  seed 1  2 agents  1380 steps" in done.out, done


def test_the_targets_of_make_exist() -> None:
    """What the README says one makes, the Makefile makes."""
    targets = re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {*re.findall(r"`?make ([a-z-]+)", README)} <= set(targets)


def test_the_tests_that_the_makefile_names_exist() -> None:
    text = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    named = re.findall(r"(?<!build/)\btests/[\w/*.]+", text)
    assert named and all(list(REPOSITORY.glob(name)) for name in named)
