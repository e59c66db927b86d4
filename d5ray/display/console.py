"""The one way to a terminal: what is stored is shown as text, never as markup, and commands nothing

Every word that d5ray prints passes here; a test finds what does not. Rich draws it, and its own controls are
the only ones that reach the terminal.
"""

import codecs
import io
import json
import math
import os
import sys
from collections.abc import Iterable, Mapping
from typing import IO, Any, Literal, cast, final

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text

from d5ray.display.visible_text import one_line, visible

__all__ = [
    "BarColumn", "ConsoleTable", "Field", "Group", "MofNCompleteColumn", "Screen", "Text",
    "TimeRemainingColumn", "as_json", "data", "err", "finite", "lines", "out", "progress", "styled", "write",
]  # fmt: skip

PIPE_WIDTH = 160  # columns, where there is no terminal


@final
class Screen(Console):
    """A terminal, or what stands in its place. A text is one line of it: see `lines` for several."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **settings)

    def render_str(self, text: str, **settings: Any) -> Text:
        """A text as it is, whatever brackets and colons are in it."""
        settings |= {"markup": False, "emoji": False, "highlight": False}
        return super().render_str(one_line(text), **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments that Rich makes of it, in which Rich's own controls alone are controls."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Drop the rest, since nobody reads any more; the command's verdict stays its exit code."""
        self.quiet = True
        _drop()


def out() -> Screen:
    """Standard output; wide enough for tables in a pipe, without colours there."""
    return Screen(width=None if sys.stdout.isatty() else PIPE_WIDTH)


def err() -> Screen:
    """Standard error: everything that is not the result."""
    return Screen(stderr=True, soft_wrap=True)


def styled(text: str, style: str = "") -> Text:
    """A text on one line in a colour."""
    return Text(one_line(text), style=style)


def lines(text: str, style: str = "") -> Text:
    """A text over several lines, such as an error's with the traceback in it."""
    return Text(visible(text), style=style)


class ConsoleTable(RichTable):
    """Rows below names, without lines between them. A cell is one line; numbers are columns to the right."""

    def __init__(
        self, *names: str, numbers: Iterable[str] = (), header: bool = True, title: str | None = None
    ) -> None:
        named = None if title is None else styled(title)
        super().__init__(
            *names, box=None, pad_edge=False, header_style="bold", show_header=header, title=named
        )
        for name in numbers:
            self.add_column(name, justify="right")

    def add_column(self, header: RenderableType = "", *rest: Any, **settings: Any) -> None:
        """Add a column with its name."""
        super().add_column(_cell(header), *rest, **settings)

    def add_row(self, *cells: RenderableType | None, **settings: Any) -> None:
        """Add a row of texts."""
        super().add_row(*map(_cell, cells), **settings)


def _cell(value: Any) -> Any:
    return one_line(value) if isinstance(value, str) else value


@final
class Field(ProgressColumn):
    """A part of a progress bar's line, by its format."""

    def __init__(self, format: str) -> None:
        super().__init__()
        self._format = format

    def render(self, task: Task) -> Text:
        """The field's text as it is now."""
        return styled(self._format.format(task=task))


def progress(*columns: ProgressColumn, show: bool, auto_refresh: bool = True) -> Progress:
    """A bar on standard error, which goes when it is done."""
    return Progress(
        *columns, console=Screen(stderr=True), transient=True, disable=not show, auto_refresh=auto_refresh
    )


_RESULTS: list[IO[str]] = []


def results_alone() -> None:
    """Keep standard output for results from now on: what is printed goes to standard error.

    So does what libraries in C and C++ print, and processes that this one starts; and what this process has
    printed before into a pipe or a file, where that waits to be written.
    """
    try:
        kept = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # one of them is closed
        return
    sys.stdout.flush()
    sys.stdout = sys.stderr  # the old one may believe that it can seek, as in the file that it was
    _RESULTS.append(open(kept, "w", encoding="utf-8", errors="backslashreplace"))  # noqa: PTH123, SIM115


def write(text: str) -> None:
    """A result for programs, on standard output: it must have no controls itself."""
    stream = _RESULTS[-1] if _RESULTS else sys.stdout
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        _drop(stream)


def as_json(data: Any) -> None:
    """JSON on standard output, and nothing else there."""
    write(json.dumps(finite(data), indent=2, default=str, allow_nan=False) + "\n")


def finite(data: Any) -> Any:
    """JSON knows no NaN: the text stands for it."""
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    if isinstance(data, Mapping):
        return {key: finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [finite(value) for value in data]
    return data


def data() -> IO[bytes]:
    """Standard output for bytes: what they are in a pipe or a file, and what can be shown on a terminal."""
    return cast(IO[bytes], _Shown()) if sys.stdout.isatty() else sys.stdout.buffer


@final
class _Shown(io.RawIOBase):
    """Shows the text that is written to it in UTF-8."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def writable(self) -> Literal[True]:
        return True

    def write(self, piece: Any) -> int:
        sys.stdout.write(visible(self._decoder.decode(bytes(piece))))
        return memoryview(piece).nbytes

    def flush(self) -> None:
        sys.stdout.flush()


def _drop(stream: IO[str] | None = None) -> None:
    """Send what is still written to standard output, or to this stream, nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, (stream or sys.stdout).fileno())
    os.close(nowhere)
