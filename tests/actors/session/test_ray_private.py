"""Claims about what is private in Ray: one file uses it, the guide lists it, and a run does without"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ray
import ray._private.utils
import ray.dashboard.modules.job.common

from d5ray.actors.session import ray_private
from d5ray.metrics.record.reader import Run
from tests.conftest import REPOSITORY
from tests.patience import patience
from tests.test_layout import LINKED, folders

PROGRAM = """
import d5ray as d5
from d5ray.actors.session import ray_private
from d5ray.actors.session import session
ray_private.found = lambda path: None
session._RAY_PRINTS = None
experiment = d5.Experiment("mlp", "digits", d5.optimizers.SGD(0.1), agents=2, cpus_per_agent=0.25, seed=4)
with d5.launch(experiment, quiet=True) as group:
    group.train(steps=3, progress=False)
d5.shutdown()
print(group.folder)
"""


def test_one_file_of_the_product_uses_what_is_private() -> None:
    """No other says `ray._private` or `ray._raylet`, or imports from there."""
    private = re.compile(r"\bray\._(private|raylet)|from ray\._|import ray\._")
    found = {
        file.relative_to(REPOSITORY).as_posix()
        for top in ("d5ray", *LINKED)
        for folder in folders(REPOSITORY / top)
        for file in folder.glob("*.py")
        if private.search(file.read_text("utf-8"))
    }
    assert found == {"actors/session/ray_private.py"}


@pytest.mark.parametrize("path", ray_private.USED)
def test_the_ray_that_is_installed_has_it_and_the_guide_names_it(path: str) -> None:
    """A Ray that has moved one is noticed here first, and the guide says what is lost then."""
    *places, name = path.split(".")
    part: Any = ray
    for each in places:
        part = getattr(part, each)
    assert hasattr(part, name)
    guide = (REPOSITORY / "docs/guide/installing.md").read_text(encoding="utf-8")
    (line,) = [line for line in guide.splitlines() if f"`ray.{path}`" in line]
    assert line.endswith(f"| {ray_private.USED[path]} |")


def test_every_function_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a Ray that has none of it they give nothing, and change nothing."""
    monkeypatch.setattr(ray, "_private", object())
    assert ray_private.prints() is None and ray_private.started() is None
    assert ray_private.raylet_socket() is None and ray_private.session_folder() is None
    assert ray_private.dashboard() is None and ray_private.head_client() is None
    assert ray_private.at_start_of_processes() is None
    ray_private.print_by(lambda data, ignore_prefix: None)
    ray_private.leave_connected()


@pytest.mark.full
def test_a_run_does_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is complete, but for the address of the dashboard."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(120), check=False)
    assert done.returncode == 0, done.stderr
    row = Run(Path(done.stdout.strip())).row
    assert (row["status"], row["dashboard"], row["steps"]) == ("completed", None, 3)
