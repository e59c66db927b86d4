"""An exit code of 0 or 1 is a verdict that was reached; every other end is another code, and one line."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from d5ray.metrics import failures
from tests.conftest import d5ray
from tests.metrics.small_runs import finished

PARTS = "FIXED = {}\nMUTABLE = {}\nMETRICS = []\n"
UNREACHED = {  # what a recipe does while it is loaded, or when the program ends -> the exit code
    "import sys; sys.exit(0)": 3,
    "import sys; sys.exit()": 3,
    "import sys; sys.exit(1)": 3,
    "raise SystemExit(0)": 3,
    "import os; os._exit(0)": 3,
    "import os; os._exit(1)": 3,
    "import os, threading; t = threading.Thread(target=os._exit, args=(0,)); t.start(); t.join()": 3,
    "import atexit, os; atexit.register(os._exit, 0)": 3,
    "raise KeyboardInterrupt": 130,
    "raise MemoryError": 3,
    "raise BaseException('odd')": 3,
    "raise GeneratorExit": 3,
}


QUICK = ("import sys; sys.exit(0)", "import os; os._exit(0)", "raise KeyboardInterrupt")


@pytest.mark.parametrize(
    "line", [line if line in QUICK else pytest.param(line, marks=pytest.mark.slow) for line in UNREACHED]
)
def test_a_recipe_that_ends_the_program_reaches_no_verdict(line: str, tmp_path: Path) -> None:
    """Whatever code it asks for; one line says so."""
    file = tmp_path / "mine.py"
    file.write_text(f"{PARTS}{line}\n")
    done = d5ray("run", str(file), env={"D5RAY_HOME": str(tmp_path / "home")})
    assert done.code == UNREACHED[line], done
    assert not done.out
    assert done.err.startswith("error: " if done.code == 3 else "interrupted"), done.err


def test_processes_that_a_recipe_forks_leave_as_they_wish(tmp_path: Path) -> None:
    """`os._exit` of a child says nothing and keeps its code: `multiprocessing` ends so."""
    file = tmp_path / "mine.py"
    file.write_text(
        "import os\nchild = os.fork()\nif not child:\n    os._exit(7)\n"
        "code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\nFIXED = MUTABLE = METRICS = code\n"
    )
    done = d5ray("run", str(file), env={"D5RAY_HOME": str(tmp_path / "home")})
    assert "METRICS is 7" in done.err or "FIXED is a int" in done.err, done.err
    assert "os._exit" not in done.err


def test_what_nobody_foresaw_is_one_line_and_a_file(tmp_path: Path) -> None:
    """Exit code 3; the traceback is where the line says, for the owner alone; the latest 50 are kept."""
    home = tmp_path / "home"
    old = home / "errors"
    old.mkdir(parents=True)
    for number in range(failures.MOST_KEPT + 5):
        (old / f"2000-{number:03}.txt").write_text("old")
    file = tmp_path / "mine.py"
    file.write_text(f"{PARTS}class Odd(BaseException):\n    pass\nraise Odd('an odd thing')\n")
    done = d5ray("run", str(file), env={"D5RAY_HOME": str(home)})
    assert done.code == 3, done
    told, _, where = done.err.strip().partition("; the traceback is in ")
    assert told == "error: Odd: an odd thing"
    assert "Traceback" not in done.err
    kept = Path(where)
    assert kept.parent == old
    assert "mine.py" in kept.read_text() and "Odd: an odd thing" in kept.read_text()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert len(list(old.iterdir())) == failures.MOST_KEPT


def test_a_traceback_goes_to_the_folder_of_the_run(tmp_path: Path) -> None:
    """Of an error within a run; once, also where it is asked for again; elsewhere where that is not there."""
    (tmp_path / "run").mkdir()
    error = ValueError("wrong")
    assert failures.keep(error, tmp_path / "run") == failures.keep(error) == tmp_path / "run" / failures.NAME
    assert "ValueError: wrong" in (tmp_path / "run" / failures.NAME).read_text()
    other = failures.keep(ValueError("other"), tmp_path / "nowhere")
    assert other is not None and other.parent.name == "errors"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("list",), "No space left"), (("list", "--json"), "No space left"), (("show", "r"), "No space left")],
)
def test_output_that_cannot_be_written_is_an_error(
    arguments: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    """Standard output on a full disk: exit code 3, and not Python's 1 or 120."""
    finished(tmp_path / "runs", "r", seed=1, verdict="PASS")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "d5ray", *arguments],
            stdout=full, stderr=subprocess.PIPE, text=True, env=os.environ | {"D5RAY_HOME": str(tmp_path)},
        )  # fmt: skip
    assert done.returncode == 3
    assert words in done.stderr and "Traceback" not in done.stderr


def test_a_reader_that_leaves_and_a_terminal_without_letters_change_nothing(tmp_path: Path) -> None:
    """A pipe that is closed, and an encoding without the signs of a table: the exit code is the verdict's."""
    finished(tmp_path / "runs", "r", seed=1, verdict="PASS")
    home = {"D5RAY_HOME": str(tmp_path)}
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "d5ray", "show", "r"],
        stdout=writing, stderr=subprocess.PIPE, text=True, env=os.environ | home,
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")
    plain = d5ray("runs", env=home | {"PYTHONIOENCODING": "ascii"})
    assert (plain.code, plain.err) == (0, "")
    assert "PASS" in plain.out and "\\u2013" in plain.out


@pytest.mark.parametrize("arguments", [("run",), ("run", "x", "--sed", "1"), ("shwo",), ("report",)])
def test_a_command_that_is_no_command_is_an_error(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Exit code 3: click's own 2 would mean that nothing was decided."""
    done = d5ray(*arguments, env={"D5RAY_HOME": str(tmp_path)})
    assert done.code == 3, done
    assert done.err.startswith("error: ")
