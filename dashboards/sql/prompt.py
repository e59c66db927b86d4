"""The line editor of `d5ray sql`: history in D5RAY_HOME, completion, statements over several lines"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from d5ray.dashboards.sql.statements import HELP, KNOWN, statements
from d5ray.errors import D5Error
from d5ray.metrics.queries.run_queries import Queryable
from d5ray.metrics.record.folders import make_folder

MOST_KEPT = 1000  # statements
_WORDS = """select from where group by order limit having join using on as and or not in is null between like
    case when then else end distinct count avg sum min max median quantile_cont stddev filter over partition
    union all with describe summarize explain pivot asc desc cast""".split()  # noqa: SIM905


def session(history: Path, run: Callable[[], Queryable]) -> Callable[[], str]:
    """Gives a function that asks for the next statement. EOFError: Ctrl-D; KeyboardInterrupt: Ctrl-C."""
    make_folder(history.parent)
    trim(history)
    prompt: PromptSession[str] = PromptSession(
        "d5ray> ",
        multiline=True,
        prompt_continuation="   ...> ",
        history=FileHistory(str(history)),
        completer=ThreadedCompleter(Names(run)),
        complete_while_typing=False,
        lexer=PygmentsLexer(SqlLexer),
        key_bindings=_keys(),
    )
    return prompt.prompt


def trim(file: Path) -> None:
    """Keep the latest statements, and let nobody else read them."""
    file.touch(mode=0o600)
    kept = list(FileHistory(str(file)).load_history_strings())  # the newest first
    if len(kept) > MOST_KEPT:
        part = file.with_name(f".{file.name}.part")
        part.touch(mode=0o600)
        fresh = FileHistory(str(part))
        for text in reversed(kept[: MOST_KEPT // 2]):
            fresh.store_string(text)
        part.replace(file)


def complete(text: str) -> bool:
    """True if Enter ends what was typed: a command, a statement with its semicolon, or nothing."""
    stripped = text.strip()
    return not stripped or stripped.startswith(".") or not statements(text)[-1].strip()


@final
class Names(Completer):
    """Tables, columns and keywords; within quotes the metrics that the run has; commands after a dot."""

    def __init__(self, run: Callable[[], Queryable]) -> None:
        self._run = run
        self._metrics: tuple[Queryable | None, list[str]] = (None, [])
        columns = {column for schema in KNOWN.values() for column in schema.names}
        self._names = [*KNOWN, *sorted(columns)]

    def get_completions(self, document: Document, _event: CompleteEvent) -> Iterable[Completion]:
        """The names that begin as the word before the cursor does, upper and lower case alike."""
        before = document.text_before_cursor
        if before.lstrip().startswith("."):
            found, typed = _commands(before.lstrip())
        elif before.count("'") % 2:
            found, typed = self._known_metrics(), before.rpartition("'")[2]
        else:
            typed = document.get_word_before_cursor()
            typed = typed if typed.replace("_", "").isalnum() else ""
            found = [*self._names, *_keywords(typed.isupper())]
        for name in found:
            if name.lower().startswith(typed.lower()):
                yield Completion(name, start_position=-len(typed))

    def _known_metrics(self) -> list[str]:
        run = self._run()
        if self._metrics[0] is not run:
            try:
                rows = run.sql("SELECT DISTINCT metric FROM samples ORDER BY metric")
                self._metrics = (run, rows["metric"].to_pylist())
            except D5Error:
                return []
        return self._metrics[1]


def _commands(text: str) -> tuple[list[str], str]:
    name, space, argument = text.partition(" ")
    if space:
        return (list(KNOWN) if name == ".schema" else []), argument
    return [word for line in HELP for word in line.replace(",", "").split() if word[0] == "."], name


def _keywords(upper: bool) -> list[str]:
    return [word.upper() if upper else word for word in _WORDS]


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def enter(event: Any) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None  # it is taken
        elif buffer.document.is_cursor_at_the_end and complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys
