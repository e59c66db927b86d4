"""Folders of runs that are wrong: every command that shows them says so, or shows what there is."""

from pathlib import Path

import pytest
import typer

from d5ray.cli.app import app
from d5ray.errors import D5Error
from tests.conftest import d5ray
from tests.odd_folders import BROKEN, good

QUICK = ("noise in samples", "runs.experiment is '{'")
COMMANDS = (
    ("runs",), ("show", "r"), ("show", "--json", "r"), ("show", "r", "--environment"), ("check", "r"),
    ("replay", "r"), ("compare", "good", "r"), ("sql", "r", "from samples"), ("sql", "r", "from runs"),
    ("sql", "r", "from summary"), ("export", "r", "--to", "csv", "--out", "OUT/csv"),
    ("timeline", "r", "--output", "OUT/t.json"),
    ("export", "r", "--to", "benchmarker", "--out", "OUT/b"), ("report", "r", "--output", "OUT/r.html"),
)  # fmt: skip


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # a table that is left out is said so
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in BROKEN]
)
def test_a_folder_that_is_wrong_is_a_clear_error_or_shown(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing but a `D5Error` of one line ends a command, and none hangs."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    good(tmp_path / "runs", "good", 2)
    BROKEN[name](good(tmp_path / "runs", "r"))
    for arguments in COMMANDS:
        words = [word.replace("OUT", str(tmp_path)) for word in arguments]
        try:
            app(words, standalone_mode=False)
        except D5Error as error:
            assert len(str(error).splitlines()) == 1, error
        except typer.Exit:
            pass
        capsys.readouterr()


@pytest.mark.parametrize(
    ("name", "said"),
    [("a" * 300, "There is no run"), ("\udcff", "what you gave is '\\udcff', which is not UTF-8")],
)
def test_a_name_that_no_file_can_have_is_no_run(name: str, said: str, tmp_path: Path) -> None:
    """Longer than 255 bytes, or not UTF-8: exit code 3, one line, no traceback in a file."""
    done = d5ray("show", name, env={"D5RAY_HOME": str(tmp_path)})
    assert done.code == 3, done
    assert done.err.startswith(f"error: {said}"), done.err
    assert len(done.err.splitlines()) == 1


def test_json_that_is_none_is_named_with_its_column(tmp_path: Path) -> None:
    """The command line on a run whose experiment is half a text: found, and where."""
    folder = good(tmp_path / "runs", "r")
    BROKEN["runs.experiment is '{'"](folder)
    done = d5ray("show", "r", env={"D5RAY_HOME": str(tmp_path)})
    assert done.code == 3
    assert "'experiment' of runs.parquet is not JSON" in done.err and str(folder) in done.err
