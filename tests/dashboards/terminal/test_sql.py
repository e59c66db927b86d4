"""Claims about `d5ray sql`: results in every format, and the line that opens runs in DuckDB's own shell"""

import csv
import io
import json
import re
import shlex
import signal
import time
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import d5ray as d5
from d5ray.cli.app import app
from d5ray.cli.sql_queries import opened_by
from d5ray.errors import D5Error
from d5ray.metrics.queries.tokens import write_private
from tests.conftest import d5ray, started, wait_until
from tests.metrics.small_runs import finished, values_of
from tests.patience import patience

FOREVER = "select count(*) from range(1000000) a, range(1000000) b, range(1000000) c"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A D5RAY_HOME with two runs."""
    root = tmp_path_factory.mktemp("the user's home")
    for name, seed in (("first", 1), ("second", 2)):
        finished(root / "runs", name, seed)
    return root


@pytest.fixture
def here(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line in this process, with that home."""
    monkeypatch.setenv("D5RAY_HOME", str(root))


def asked(*arguments: str) -> Any:
    """What the command came to: stdout, stderr, exit_code, exception."""
    return CliRunner().invoke(app, ["sql", *arguments])


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("names", [["first"], []])
def test_without_a_query_duckdb_opens_what_it_prints(names: list[str]) -> None:
    """A run, or all of them: tables have the rows that d5ray's own query has, whatever a folder's name."""
    program, option, views = shlex.split(asked(*names).stdout)
    assert (program, option) == ("duckdb", "-cmd")
    with duckdb.connect(":memory:") as theirs:
        theirs.execute(views)
        for table in ("samples", "runs"):
            query = f"select run_id, count(*) n from {table} group by 1 order by 1"
            rows = [tuple(row.values()) for row in json.loads(asked(*names, query, "--json").stdout)]
            assert theirs.sql(query).fetchall() == rows
            assert len(rows) == (1 if names else 2)


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
        (("selct 1",), "syntax error"),
        (("drop table runs",), "read only"),
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


def test_a_run_without_finished_tables_is_asked_with_a_query(tmp_path: Path) -> None:
    (tmp_path / "it's one").mkdir()
    with pytest.raises(D5Error, match="give a query"):
        opened_by(d5.Run(tmp_path / "it's one"))
