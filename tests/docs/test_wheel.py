"""A new user has the wheel and nothing else: it is whole, and every lesson goes with it alone"""

import os
import shutil
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ran
from tests.docs.lessons import differences, follow
from tests.docs.page import REPOSITORY, Page, pages

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
LINKED = ("actors", "dashboards", "ops", "recipes")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from what is committed or about to be, by this environment's setuptools."""
    folder = tmp_path_factory.mktemp("wheel")
    listed = _output("git", "-C", str(REPOSITORY), "ls-files", "--cached", "--others", "--exclude-standard")
    source = folder / "source"
    for name in listed.splitlines():
        if (REPOSITORY / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, source / name, follow_symlinks=False)
    _output(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source))
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment with the wheel in it. What it depends on is taken from where the tests run."""
    venv = tmp_path_factory.mktemp("user") / "venv"
    _output(sys.executable, "-m", "venv", str(venv))
    packages = venv / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    executable = venv / "bin" / "python"
    _output(str(executable), "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel))
    return executable


def test_the_wheel_holds_what_the_checkout_holds(wheel: Path) -> None:
    """Every file under `d5ray` and the four folders, under its name as it is imported, and nothing else."""
    expected = set()
    for top, name in (("d5ray", "d5ray"), *((each, f"d5ray/{each}") for each in LINKED)):
        for folder, inner, files in os.walk(REPOSITORY / top, followlinks=False):
            inner[:] = [each for each in inner if each != "__pycache__"]
            for file in files:
                expected.add(f"{name}/{(Path(folder) / file).relative_to(REPOSITORY / top).as_posix()}")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if not name.startswith("d5ray-")}
    assert held == expected


def test_the_wheels_dependencies_are_those_that_the_tests_have(python: Path) -> None:
    """`pip check` finds no version that the wheel would not take, and d5ray comes from the environment."""
    where = _output(str(python), "-c", "import d5ray; print(d5ray.__file__)").strip()
    assert Path(where).is_relative_to(python.parent.parent)
    assert "d5ray" not in _output(str(python), "-m", "pip", "check", fails=True)


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.stem)
def test_a_lesson_goes_with_the_wheel_alone(path: Path, python: Path, tmp_path: Path) -> None:
    """From an empty folder, without the checkout anywhere on the way."""
    page = Page.read(path)
    assert differences(follow(page, tmp_path, python, checkout=False)) == []


def _output(*command: str, fails: bool = False) -> str:
    """What a command outside of the checkout prints."""
    return ran(*command, cwd=Path("/"), env={"PYTHONPATH": ""}, seconds=300, fails=fails).out
