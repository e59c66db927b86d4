"""Claims about a checkout by a git without symbolic links: one line says it, and what that says helps"""

import re
import shutil
import sys
from pathlib import Path

import pytest

from d5ray.identity import links
from tests.conftest import Finished, ran
from tests.test_layout import LINKED, REPOSITORY

pytestmark = pytest.mark.skipif(
    not (shutil.which("git") and shutil.which("make")), reason="no git, or no make"
)


def done(folder: Path, *command: str) -> Finished:
    """A command that ran in the folder to its end."""
    own = {"D5RAY_HOME": str(folder / "home"), "PYTHONDONTWRITEBYTECODE": "1"}
    return ran(*command, cwd=folder, env=own, fails=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A clone of d5ray in which git wrote the links as text files."""
    origin = tmp_path / "origin"
    without = shutil.ignore_patterns("__pycache__")
    for name in ("d5ray", *LINKED):
        shutil.copytree(REPOSITORY / name, origin / name, symlinks=True, ignore=without)
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(REPOSITORY / name, origin)
    git = ("git", "-c", "user.name=d5ray", "-c", "user.email=d5ray@localhost", "-c", "commit.gpgsign=false")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "d5ray")):
        made = done(origin, *git, *words)
        assert made.code == 0, made.err
    cloned = done(tmp_path, "git", "clone", "-q", "-c", "core.symlinks=false", str(origin), "clone")
    assert cloned.code == 0, cloned.err
    assert (tmp_path / "clone" / "d5ray" / "actors").read_text(encoding="utf-8") == "../actors"
    return tmp_path / "clone"


def test_links_that_are_text_files_are_named_and_become_links(checkout: Path) -> None:
    """By an import below one, by a public name, by the command and by make; git's commands then help."""
    said = links.broken(str(checkout / "d5ray"))
    assert said is not None
    assert said.startswith(
        "d5ray/actors, d5ray/dashboards, d5ray/ops, d5ray/recipes are text files, not links"
    )
    assert "\n" not in said
    for code in (
        "import d5ray.ops.losses",
        "from d5ray.actors.launch import launch",
        "import d5ray; d5ray.launch",
    ):
        failed = done(checkout, sys.executable, "-c", code)
        assert failed.err.splitlines()[-1] == f"d5ray.identity.links.LinkIsText: {said}"
    failed = done(checkout, sys.executable, "-m", "d5ray", "list")
    assert (failed.code, failed.out, failed.err) == (3, "", f"error: {said}\n")
    failed = done(checkout, "make", "run", f"PYTHON={sys.executable}")
    assert failed.code == 2 and failed.err.splitlines()[0] == said
    assert not (checkout / ".venv").exists()

    (helps,) = re.findall(r"run `(.*?)`", said)
    helped = done(checkout, "sh", "-c", helps)
    assert helped.code == 0, helped.err
    assert links.broken(str(checkout / "d5ray")) is None
    listed = done(checkout, sys.executable, "-m", "d5ray", "list")
    assert listed.code == 0 and "digits_lenet" in listed.out, listed.err
