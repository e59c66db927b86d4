"""`d5ray sql`: the shell on a terminal, statements from a pipe, results in every format"""

import csv
import io
import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory
from typer.testing import CliRunner

import d5ray as d5
from d5ray.cli.app import app
from d5ray.dashboards.sql import prompt, shell
from d5ray.errors import ConfigurationError, D5Error
from d5ray.metrics.queries.tokens import write_private
from tests.conftest import d5ray, started, wait_until
from tests.metrics.small_runs import finished, values_of
from tests.patience import patience

FOREVER = "select count(*) from range(1000000) a, range(1000000) b, range(1000000) c"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A D5RAY_HOME with two runs."""
    root = tmp_path_factory.mktemp("home")
    for name, seed in (("first", 1), ("second", 2)):
        finished(root / "runs", name, seed)
    return root


@pytest.fixture
def terminal(root: Path) -> Iterator[Any]:
    """The shell on a terminal of 100 columns."""
    child = pexpect.spawn(
        sys.executable,
        ["-m", "d5ray", "sql", "first"],
        env=os.environ | {"D5RAY_HOME": str(root), "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"},
        encoding="utf-8",
        timeout=patience(20),
        dimensions=(40, 100),
    )
    child.expect("Ctrl-D to leave")
    yield child
    child.close(force=True)


@pytest.mark.full
def test_the_shell_on_a_terminal(terminal: Any, root: Path) -> None:
    """Several lines, completion, an error, Ctrl-C in a query and in a line, commands, history, Ctrl-D."""
    terminal.expect("d5ray>")
    terminal.send("select metric, count(*) as n\r")
    terminal.expect(r"\.\.\.>")
    terminal.send("from samples where metric = 'lo\t")
    terminal.expect("ss")
    terminal.send("' group by 1;\r")
    terminal.expect(r"loss\s+200")
    terminal.expect(r"1 row in 0\.\d+ s")
    terminal.send("selec 1;\r")
    terminal.expect("LINE 1: selec 1")
    terminal.send(f"{FOREVER};\r")
    time.sleep(0.5)
    terminal.sendintr()
    terminal.expect("interrupted")
    terminal.send("this is dropped\x03")
    terminal.send(".use secnd\r")
    terminal.expect("did you mean 'second'")
    terminal.send(".use second\r")
    terminal.expect("second")
    terminal.send("select 'seed', seed from runs;\r")
    terminal.expect(r"seed\s+2")
    terminal.send("\x04")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0
    history = root / "sql_history"
    assert history.stat().st_mode & 0o777 == 0o600
    kept = list(FileHistory(str(history)).load_history_strings())
    assert kept[0] == "select 'seed', seed from runs;"
    assert kept[-1] == "select metric, count(*) as n\nfrom samples where metric = 'loss' group by 1;"
    assert "this is dropped" not in kept


@pytest.fixture
def here(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line in this process, with that home."""
    monkeypatch.setenv("D5RAY_HOME", str(root))


def asked(*arguments: str, text: str = "") -> Any:
    """What the command came to: stdout, stderr, exit_code, exception; text: its standard input."""
    return CliRunner().invoke(app, ["sql", *arguments], input=text)


@pytest.mark.usefixtures("here")
def test_statements_come_from_a_pipe() -> None:
    """Semicolons within texts and comments end nothing; all runs are asked where none is named."""
    done = asked(
        text=".csv\nselect ';' as a, -- not; here\n 2 as b; select run_id, count(*) n\n"
        "from samples group by 1 order by 1;\n.rows 2\n.table\nselect step from samples order by step"
    )
    assert done.exit_code == 0, done
    lines = done.stdout.splitlines()
    assert lines[:5] == ['"a","b"', '";",2', '"run_id","n"', '"first",400', '"second",400']
    assert [line.strip() for line in lines[5:]] == ["step", "0", "0"]
    assert "the first 2 of 800 rows" in done.stderr
    done = asked("first", text="select 1 as a;\nselect nothing from samples;\nselect 2 as b;\n")
    assert isinstance(done.exception, ConfigurationError) and "LINE 1:" in str(done.exception)
    assert done.stdout.split() == ["a", "1"]


@pytest.mark.usefixtures("here")
def test_the_commands_of_the_shell() -> None:
    """Tables with their rows, the columns of one, runs, help; a wrong one is answered with the nearest."""
    out = asked("first", text=".tables\n.schema samples\n.runs\n.help\n.exit\nselect 1").stdout
    assert re.search(r"^samples +400 *$", out, re.MULTILINE)
    assert re.search(r"^value +DOUBLE", out, re.MULTILINE)
    assert "second" in out and ".schema TABLE" in out
    for wrong, message in (
        (".tabels", "'.tables'"),
        (".schema sample", "'samples'"),
        (".rows x", "at least 1"),
        (".use x", "no run"),
    ):
        assert message in str(asked("first", text=wrong).exception)


@pytest.mark.usefixtures("here")
def test_one_query_is_written_in_every_format(tmp_path: Path) -> None:
    """The values are NumPy's, to the last bit."""
    query = "select step, value from samples where metric = 'loss' order by step"
    expected = values_of(1)[:, 1].tolist()
    rows = list(csv.DictReader(io.StringIO(asked("first", query, "--format", "csv").stdout)))
    assert [float(row["value"]) for row in rows] == expected
    for arguments in (("--format", "json"), ("--json",)):
        assert [row["value"] for row in json.loads(asked("first", query, *arguments).stdout)] == expected
    for name in ("csv", "json", "arrow", "parquet"):
        file = tmp_path / f"x.{name}"
        assert "200 rows in" in asked("first", query, "--format", name, "--output", str(file)).stderr
    assert pq.read_table(tmp_path / "x.parquet")["value"].to_pylist() == expected
    with pa.ipc.open_file(tmp_path / "x.arrow") as opened:
        assert opened.read_all()["value"].to_pylist() == expected
    assert json.loads((tmp_path / "x.json").read_text())[7]["value"] == expected[7]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.arrow", "x.csv", "x.json", "x.parquet"]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("first", "select 1", "--format", "xml"), "no such format"),
        (("first", "select 1", "--format", "parquet"), "--output FILE"),
        (("first", "select 1", "--output", "x.csv"), "needs a format"),
        (("first", "--format", "csv", "--output", "x.csv"), "needs a query"),
        (("first", "select 1", "--format", "csv", "--output", "/nowhere/x.csv"), "cannot be written"),
        (("first", "select 1", "--format", "csv", "--output", "/etc/passwd"), "exists"),
        (("first", "select [1]", "--format", "csv"), "CSV cannot hold"),
        (("first", "select 1", "--rows", "-1"), "at least 1"),
        (("frist", "select 1"), "did you mean 'first'"),
        (("grpc+tcp://127.0.0.1:1", "select 1"), "needs its token"),
        (
            ("grpc+tcp://127.0.0.1:1", "select 1", "--token-file", "/nowhere/x"),
            "--token-file '/nowhere/x' does not exist",
        ),
        (("first", "select 1", "--token-file", "pyproject.toml"), "is for a server"),
        (("first", "--serve", "here"), "give PORT"),
    ],
)
def test_a_wrong_command_is_one_clear_error(arguments: tuple[str, ...], message: str) -> None:
    """Found, expected, what to do."""
    done = asked(*arguments)
    assert isinstance(done.exception, D5Error), done
    assert message in str(done.exception)
    assert done.stdout == ""


@pytest.mark.full
def test_ctrl_c_ends_a_query_from_the_command_line(root: Path) -> None:
    """Soon, with one line that says so, and nothing left."""
    with started("sql", "first", FOREVER, env={"D5RAY_HOME": str(root)}) as command:
        maps = Path(f"/proc/{command.process.pid}/maps")
        wait_until(lambda: "_duckdb" in maps.read_text(), 60)  # it has begun to ask
        time.sleep(1)
        command.process.send_signal(signal.SIGINT)
        out, err = command.process.communicate(timeout=patience(10))
    assert (command.process.returncode, out, err.strip()) == (130, "", "interrupted")


@pytest.mark.full
def test_a_folder_is_served_until_it_is_told_to_end(root: Path, tmp_path: Path) -> None:
    """`--serve` prints the address and the token, and ends by SIGTERM with nothing left."""
    with started("sql", "first", "--serve", "0", env={"D5RAY_HOME": str(root)}) as command:
        assert command.process.stderr is not None
        line = command.process.stderr.readline()
        location, token = re.findall(r"(grpc\S+)  token (\S+)", line)[0]
        run = d5.Run(location, token=token)
        assert run.sql("select count(*) n from samples")["n"].to_pylist() == [400]
        write_private(tmp_path / "token", token)
        given: list[tuple[list[str], dict[str, str]]] = [
            (["--token-file", str(tmp_path / "token")], {}),
            ([], {"D5RAY_TOKEN": token}),
        ]
        for options, environment in given:
            done = d5ray("sql", location, "select seed from runs", *options, "--json", env=environment)
            assert json.loads(done.out) == [{"seed": 1}]
        command.process.terminate()
        assert command.process.wait(patience(10)) == 0


def test_a_wide_result_says_which_columns_fit(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    """No line is longer than the terminal; the first and last columns stay."""
    names, rows = [f"column_{at}" for at in range(40)], [list(range(40))]
    shell.show(names, rows)
    told = capsys.readouterr()
    assert max(map(len, told.out.splitlines())) <= 160
    header = told.out.split()
    assert header[0] == "column_0" and "column_39" in header and "…" in header
    assert re.search(r"\d+ of 40 columns fit", told.err)


def completed(text: str, run: d5.Run) -> list[str]:
    """What the completion offers behind a text."""
    names = prompt.Names(lambda: run)
    return [found.text for found in names.get_completions(Document(text), CompleteEvent())]


def test_names_are_completed(root: Path) -> None:
    """Tables, columns, keywords; metrics of this run within quotes; commands and their tables."""
    run = d5.Run(root / "runs" / "first")
    assert "samples" in completed("select * from sam", run)
    assert completed("select val", run) == ["value"]
    assert "SELECT" in completed("SEL", run)
    assert completed("select 1 from samples where metric = 'st", run) == ["step_time"]
    assert completed(".sch", run) == [".schema"]
    assert completed(".schema ver", run) == ["verdicts"]


def test_a_statement_ends_with_its_semicolon() -> None:
    """Not within a text, a quoted name or a comment."""
    for text, whole in (
        ("select 1;", True), ("select 1", False), ("select ';'", False), ("select 1 -- ;", False), ("", True),
        (".tables", True), ('select ";" from x;  ', True), ("select 1; select 2", False), ("/* ; */", False),
    ):  # fmt: skip
        assert prompt.complete(text) == whole, text


def test_the_history_is_bounded(tmp_path: Path) -> None:
    """Of too many statements the latest half of the bound stays."""
    file = tmp_path / "history"
    history = FileHistory(str(file))
    for number in range(prompt.MOST_KEPT + 5):
        history.store_string(f"select {number};\n-- second line")
    prompt.trim(file)
    kept = list(FileHistory(str(file)).load_history_strings())
    assert len(kept) == prompt.MOST_KEPT // 2
    assert kept[0] == f"select {prompt.MOST_KEPT + 4};\n-- second line"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_shell_keeps_its_run_when_another_is_not_there(root: Path) -> None:
    """`.use` of a wrong name changes nothing."""
    run = d5.Run(root / "runs" / "first")

    def find(name: str) -> d5.Run:
        raise ConfigurationError(f"no run {name}")

    talk = shell.Shell(run, find)
    with pytest.raises(ConfigurationError):
        talk.execute(".use other")
    assert talk.run is run
