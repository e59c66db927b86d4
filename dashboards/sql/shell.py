"""The shell of `d5ray sql`: statements over several lines, completion, history; a pipe of statements alike"""

import threading
import time
from collections.abc import Callable
from typing import IO, Any, final

from d5ray.dashboards.sql import output_formats
from d5ray.dashboards.sql.statements import HELP, KNOWN, statements
from d5ray.dashboards.terminal import run_tables
from d5ray.display.console import ConsoleTable, err, lines, out
from d5ray.errors import ConfigurationError, D5Error, nearest
from d5ray.metrics.queries.run_queries import Queryable
from d5ray.metrics.queries.source import Answer
from d5ray.metrics.record.folders import home
from d5ray.metrics.record.schema import TABLES
from d5ray.metrics.record.store import list_runs

ROWS = 40  # of a result that are shown
_PATIENCE = 5.0  # s for a query to end that was interrupted


@final
class Shell:
    """Statements and commands to a run; `find` gives the run of a name for `.use`."""

    def __init__(
        self, run: Queryable, find: Callable[[str], Queryable], *, rows: int = ROWS, format: str = "table"
    ) -> None:
        self.run, self._find = run, find
        self._limit, self._format = rows, format
        self.left = False

    def execute(self, text: str) -> None:
        """Run a statement, with or without semicolon, or a command such as `.tables`; raises `D5Error`."""
        text = text.strip().rstrip(";").strip()
        if text.startswith("."):
            self._command(text)
        elif text:
            interruptible(self.run, lambda: self._statement(text))

    def piped(self, stream: IO[str]) -> None:
        """Run all statements of a text, separated by semicolons; the first error ends it."""
        waiting = ""
        for line in stream:
            if not waiting.strip() and line.startswith("."):
                self.execute(line)
                continue
            waiting += line
            *whole, waiting = statements(waiting)
            for statement in whole:
                self.execute(statement)
            if self.left:
                return
        self.execute(waiting)

    def interactive(self) -> None:
        """Ask until the user leaves."""
        from d5ray.dashboards.sql.prompt import session  # noqa: PLC0415 (only on a terminal)

        prompt = session(home() / "sql_history", lambda: self.run)
        err().print(f"{self.run!r}  .help for help, Ctrl-D to leave", style="dim")
        while not self.left:
            try:
                self.execute(prompt())
            except KeyboardInterrupt:  # Ctrl-C: what was typed is dropped, or the query was ended
                err().print("interrupted", style="yellow")
            except EOFError:
                return
            except D5Error as error:
                err().print(lines(str(error), "red"))

    # --------------------------------------------------------------------------------------------------

    def _statement(self, query: str) -> None:
        begin = time.perf_counter()
        if self._format in output_formats.TEXT:
            with self.run.ask(query) as answer:
                output_formats.write(answer, self._format, None)
            return
        with self.run.ask(query) as answer:
            rows, more = _first(answer, self._limit)
            names = answer.schema.names
        show(names, rows)
        count = f"{len(rows):,} {'row' if len(rows) == 1 else 'rows'}"
        if more:
            count = f"the first {len(rows):,} of {_count(self.run, query)} rows"
        err().print(f"{count} in {time.perf_counter() - begin:.3f} s", style="dim")

    def _command(self, text: str) -> None:
        name, _, argument = text.partition(" ")
        argument = argument.strip()
        if name in (".exit", ".quit"):
            self.left = True
        elif name == ".help":
            run_tables.pairs(HELP)
        elif name == ".tables":
            interruptible(self.run, self._tables)
        elif name == ".schema":
            if argument not in KNOWN:
                raise ConfigurationError(f"There is no table {argument!r}: {nearest(argument, KNOWN)}")
            interruptible(self.run, lambda: self._statement(f"DESCRIBE {argument}"))
        elif name == ".runs":
            run_tables.runs(list_runs())
        elif name == ".use":
            self.run = self._find(argument)
            err().print(repr(self.run), style="dim")
        elif name == ".rows":
            if not argument.isdigit() or not int(argument):
                raise ConfigurationError(f".rows {argument}: give an integer of at least 1")
            self._limit = int(argument)
        elif name in (".table", ".json", ".csv"):
            self._format = name[1:]
        else:
            known = [word for line in HELP for word in line.replace(",", "").split() if word.startswith(".")]
            raise ConfigurationError(f"There is no command {name!r}: {nearest(name, known)}")

    def _tables(self) -> None:
        rows = []
        for name in TABLES:
            found = self.run.sql(f"SELECT count(*) AS n FROM {name}")
            rows.append([name, found["n"][0].as_py()])
        show(["table", "rows"], [*rows, ["summary", None]])


def show(names: list[str], rows: list[list[Any]]) -> None:
    """Rows on standard output. Columns that do not fit are left out in the middle, and that is said."""
    console = out()
    cells = [[run_tables.cell(value) for value in row] for row in rows]
    widths = [max([len(name), *(len(row[at]) for row in cells)]) + 2 for at, name in enumerate(names)]
    kept = _fitting(widths, console.width)
    table = ConsoleTable()
    for at in kept:
        numeric = any(isinstance(row[at], (int, float)) for row in rows if at is not None)
        table.add_column("…" if at is None else names[at], justify="right" if numeric else "left",
                         no_wrap=True, overflow="ellipsis")  # fmt: skip
    for row in cells:
        table.add_row(*("…" if at is None else row[at] for at in kept))
    console.print(table)
    if None in kept:
        err().print(f"{len(kept) - 1} of {len(names)} columns fit: select some, or .json, .csv", style="dim")


def _fitting(widths: list[int], room: int) -> list[int | None]:
    """The numbers of the columns to show, None where some are left out."""
    if sum(widths) <= room or len(widths) < 3:
        return list(range(len(widths)))
    left, right, used = [0], [len(widths) - 1], widths[0] + widths[-1] + 3
    for turn in range(1, len(widths) - 1):
        at = left[-1] + 1 if turn % 2 else right[0] - 1
        if used + widths[at] > room or at in left or at in right:
            break
        used += widths[at]
        if turn % 2:
            left.append(at)
        else:
            right.insert(0, at)
    return [*left, None, *right]


def _first(answer: Answer, limit: int) -> tuple[list[list[Any]], bool]:
    """The first rows, and whether there are more."""
    rows: list[list[Any]] = []
    for batch in answer.batches:
        rows += [list(row.values()) for row in batch.slice(0, limit + 1 - len(rows)).to_pylist()]
        if len(rows) > limit:
            return rows[:limit], True
    return rows, False


def _count(run: Queryable, query: str) -> str:
    try:
        return f"{run.sql(f'SELECT count(*) AS n FROM ({query})')['n'][0].as_py():,}"
    except D5Error:  # not every statement can stand in parentheses
        return "many"


def interruptible(run: Queryable, ask: Callable[[], None]) -> None:
    """Run a function on a thread of its own, so that Ctrl-C ends the query and nothing else."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            ask()
        except BaseException as error:
            failed.append(error)
        finally:
            done.set()

    source, done = run.source, threading.Event()  # joining a thread and Ctrl-C do not go together in 3.11
    threading.Thread(target=work, daemon=True).start()
    try:
        while not done.wait(0.1):
            pass
    except KeyboardInterrupt:
        end = time.monotonic() + _PATIENCE
        source.interrupt()
        while not done.wait(0.1) and time.monotonic() < end:
            source.interrupt()  # again: before it has begun a query cannot be interrupted
        if not done.is_set():  # it goes on alone; the next query gets a connection of its own
            run.close()
        raise
    if failed:
        raise failed[0]
