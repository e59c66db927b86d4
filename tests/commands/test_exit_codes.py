"""An exit code of 0 or 1 is a verdict that was reached; every other end is another code, and one line."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from d5ray.errors import StorageError
from d5ray.failures import tracebacks
from d5ray.metrics.record.reader import Run
from tests.conftest import Finished, d5ray
from tests.metrics.small_runs import finished
from tests.patience import patience

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


def ran(recipe: str, folder: Path) -> Finished:
    """`d5ray run` of a recipe with this text, `mine.py` in the folder, and a home beside it."""
    (folder / "mine.py").write_text(recipe)
    return d5ray("run", str(folder / "mine.py"), env={"D5RAY_HOME": str(folder / "home")})


QUICK = ("import sys; sys.exit(0)", "import os; os._exit(0)", "raise KeyboardInterrupt")


@pytest.mark.full
@pytest.mark.parametrize(
    "line", [line if line in QUICK else pytest.param(line, marks=pytest.mark.slow) for line in UNREACHED]
)
def test_a_recipe_that_ends_the_program_reaches_no_verdict(line: str, tmp_path: Path) -> None:
    """Whatever code it asks for; one line says so."""
    done = ran(f"{PARTS}{line}\n", tmp_path)
    assert done.code == UNREACHED[line], done
    assert not done.out
    assert done.err.startswith("error: " if done.code == 3 else "interrupted"), done.err


def test_processes_that_a_recipe_forks_leave_as_they_wish(tmp_path: Path) -> None:
    """`os._exit` of a child says nothing and keeps its code: `multiprocessing` ends so."""
    done = ran(
        "import os\nchild = os.fork()\nif not child:\n    os._exit(7)\n"
        "code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\nFIXED = MUTABLE = METRICS = code\n",
        tmp_path,
    )
    assert "METRICS is 7" in done.err or "FIXED is a int" in done.err, done.err
    assert "os._exit" not in done.err


def test_what_nobody_foresaw_is_one_line_and_a_file(tmp_path: Path) -> None:
    """Exit code 3; the traceback is where the line says, for the owner alone; the latest 50 are kept."""
    old = tmp_path / "home" / "errors"
    old.mkdir(parents=True)
    for number in range(tracebacks.MOST_KEPT + 5):
        (old / f"2000-{number:03}.txt").write_text("old")
    done = ran(f"{PARTS}class Odd(BaseException):\n    pass\nraise Odd('an odd thing')\n", tmp_path)
    assert done.code == 3, done
    told, _, where = done.err.strip().partition("; the traceback is in ")
    assert told == "error: Odd: an odd thing"
    assert "Traceback" not in done.err
    kept = Path(where)
    assert kept.parent == old
    assert "mine.py" in kept.read_text() and "Odd: an odd thing" in kept.read_text()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert len(list(old.iterdir())) == tracebacks.MOST_KEPT


@pytest.mark.full
def test_what_the_users_own_code_raises_in_an_agent_is_one_line_that_names_it(tmp_path: Path) -> None:
    """An optimizer with a mistake: the agent, the step, the user's line; the whole traceback in a file."""
    done = ran(
        "import d5ray as d5\n"
        "from dataclasses import dataclass\n"
        "@dataclass(frozen=True)\n"
        "class Mine(d5.Optimizer):\n"
        "    def update(self, x, gradient, state):\n"
        "        raise ValueError('my rule has\\na mistake')\n"
        "FIXED = {'model': 'mlp', 'dataset': 'digits', 'epochs': 1, 'agents': 1}\n"
        "MUTABLE = {'optimizer': Mine()}\n"
        "METRICS = [d5.metrics.TestAccuracy() >= 0.1]\n",
        tmp_path,
    )
    assert done.code == 3, done
    (line,) = [each for each in done.err.splitlines() if each.startswith("error: ")]
    told, _, where = line.partition("; the traceback is in ")
    assert told == (
        "error: TrainingAgent(rank=0) failed at step 0: ValueError: my rule has a mistake "
        f"({tmp_path / 'mine.py'}, line 6, in update)"
    )
    assert "Traceback" not in done.err and "Traceback (most" in Path(where).read_text()


def test_a_traceback_goes_to_the_folder_of_the_run(tmp_path: Path) -> None:
    """Of an error within a run; once, also where it is asked for again; elsewhere where that is not there."""
    (tmp_path / "run").mkdir()
    error = ValueError("wrong")
    assert (
        tracebacks.keep(error, tmp_path / "run")
        == tracebacks.keep(error)
        == tmp_path / "run" / tracebacks.NAME
    )
    assert "ValueError: wrong" in (tmp_path / "run" / tracebacks.NAME).read_text()
    other = tracebacks.keep(ValueError("other"), tmp_path / "nowhere")
    assert other is not None and other.parent.name == "errors"


@pytest.mark.full
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


def test_json_goes_into_a_file(tmp_path: Path) -> None:
    """Which can be sought in, while standard error is a pipe."""
    with (tmp_path / "list.json").open("w+") as file:
        command = [sys.executable, "-m", "d5ray", "list", "--json"]
        done = subprocess.run(command, stdout=file, stderr=subprocess.PIPE, text=True, check=False)
        file.seek(0)
        assert (done.returncode, done.stderr) == (0, "")
        assert "digits_lenet" in json.load(file)


@pytest.mark.full
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


def test_a_reader_of_the_help_that_leaves_is_no_error() -> None:
    """As of `d5ray --help | head`: nothing is said, and the exit code is that of SIGPIPE."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "d5ray", "--help"], stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


@pytest.mark.full
@pytest.mark.parametrize("arguments", [("run",), ("run", "x", "--sed", "1"), ("shwo",), ("report",)])
def test_a_command_that_is_no_command_is_an_error(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Exit code 3: click's own 2 would mean that nothing was decided."""
    done = d5ray(*arguments, env={"D5RAY_HOME": str(tmp_path)})
    assert done.code == 3, done
    assert done.err.startswith("error: ")


@pytest.mark.full
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("import helper", "SyntaxError: invalid syntax (helper.py, line 1)"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_recipe_that_cannot_be_loaded_is_one_line_and_a_file(line: str, words: str, tmp_path: Path) -> None:
    """What is wrong with it or a module of its own, and where; the traceback is in the file that is named."""
    (tmp_path / "helper.py").write_text("def half(:\n")
    file, done = tmp_path / "mine.py", ran(f"{PARTS}{line}\n", tmp_path)
    assert (done.code, done.out) == (3, ""), done
    (told,) = done.err.splitlines()
    assert told.startswith(f"error: the recipe {file} cannot be loaded: {words}")
    if "SyntaxError" not in words:
        assert f"({file}, line 4)" in told
    assert "mine.py" in Path(told.rpartition(" is in ")[2]).read_text()


@pytest.mark.parametrize("module", ["psutil", "typer", "rich", "pyarrow"])
def test_a_package_that_cannot_be_imported_is_one_line_and_a_file(module: str, tmp_path: Path) -> None:
    """Such as a file of the user's that has its name: exit code 3, and not Python's 1, which means FAIL."""
    odd = "an odd\\x1b thing"
    (tmp_path / f"{module}.py").write_text(f"raise RuntimeError('{odd}')\n")
    home = tmp_path / "home"
    done = d5ray("run", "digits_lenet", env={"D5RAY_HOME": str(home)}, cwd=tmp_path)
    assert (done.code, done.out) == (3, ""), done
    (told,) = done.err.splitlines()
    assert "RuntimeError: an odd␛ thing" in told and f"{module}.py" in told
    assert "Traceback" in Path(told.rpartition(" is in ")[2]).read_text()


def without_rights(*arguments: str, home: Path) -> "subprocess.CompletedProcess[str]":
    """The command line as one whom the permissions of files bind, whoever runs the tests."""
    bound = () if os.getuid() else ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
    return subprocess.run(
        [*bound, sys.executable, "-m", "d5ray", *arguments],
        capture_output=True, text=True, env=os.environ | {"D5RAY_HOME": str(home)}, timeout=patience(60),
    )  # fmt: skip


@pytest.mark.full
@pytest.mark.skipif(not os.getuid() and shutil.which("setpriv") is None, reason="root may read everything")
@pytest.mark.parametrize("closed", ["r", "r/runs.parquet", "r/samples.parquet", "."])
def test_what_may_not_be_read_breaks_no_rule(closed: str, tmp_path: Path) -> None:
    """`d5ray check` of a run that another user has closed: an error that names it, and no FAIL."""
    finished(tmp_path / "runs", "r", seed=1, verdict="PASS")
    place = tmp_path / "runs" / closed
    rights = place.stat().st_mode
    place.chmod(0)
    try:
        done = without_rights("check", "r", home=tmp_path)
    finally:
        place.chmod(rights)
    assert (done.returncode, done.stdout) == (3, ""), done
    (told,) = done.stderr.splitlines()
    assert f"{place} may not be read by this user" in told


@pytest.mark.full
@pytest.mark.skipif(not os.getuid() and shutil.which("setpriv") is None, reason="root may read everything")
def test_a_run_that_another_user_has_closed_hides_no_other(tmp_path: Path) -> None:
    """Several users have one D5RAY_HOME: a run is shown beside one of its recipe that may not be read."""
    _, closed = (finished(tmp_path / "runs", f"small-{seed}", seed=seed) for seed in (1, 2))
    closed.chmod(0)
    try:
        shown = without_rights("show", "small-1", home=tmp_path)
    finally:
        closed.chmod(0o700)
    assert (shown.returncode, shown.stderr) == (0, "") and "seed 1" in shown.stdout


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
@pytest.mark.parametrize("name", ["samples.parquet", "samples.arrows", "runs.parquet"])
def test_a_pipe_or_folder_in_the_place_of_a_table_is_an_error(
    make: Callable[[Path], None], name: str, tmp_path: Path
) -> None:
    """A query on it: neither an empty table, nor a wait for what nobody writes."""
    folder = finished(tmp_path / "runs", "r", seed=1, verdict="PASS")
    (folder / "samples.parquet").unlink()
    (folder / name).unlink(missing_ok=True)
    make(folder / name)
    with pytest.raises(StorageError, match=f"{name} is not a file"):
        Run(folder).sql("select * from samples")


COMMAND = """
import os, subprocess, sys
{first}
from d5ray.dashboards.terminal.run_tables import as_json
from d5ray.failures.finish import finish

def app(words, standalone_mode):
    {said}
    as_json({{"verdict": "PASS"}})

finish(app)
"""


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ("", "print('hello')"),
        ("", "os.write(1, b'hello')"),
        ("", "subprocess.run(['echo', 'hello'])"),
        ("", "sys.stdout.write('hello')"),
        ("print('hello')", "pass"),  # as at the top of a recipe that is run as a program
    ],
)
def test_json_is_alone_on_standard_output(first: str, said: str) -> None:
    """What a recipe prints, by whatever way, is on standard error, and programs read the result."""
    words = [sys.executable, "-c", COMMAND.format(first=first, said=said), "--json"]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=env)
    assert json.loads(done.stdout) == {"verdict": "PASS"}
    assert "hello" in done.stderr
