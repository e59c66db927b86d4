"""What is stored is shown: it is no markup, it commands no terminal, and all that prints passes one place."""

import ast
import contextlib
import io
import json
import os
import re
import tempfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import typer
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from d5ray.cli.app import app
from d5ray.display import console
from d5ray.display.visible_text import HIDDEN, one_line, visible
from d5ray.errors import D5Error
from d5ray.metrics.judge.criteria import Verdict
from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.record.schema import table_of
from d5ray.metrics.record.store import RunWriter
from tests.metrics.small_runs import record, values_of
from tests.test_layout import sources

ALLOWED = (
    "d5ray/display/console.py",
    "actors/cluster/cut_off.py",  # a program of its own, whose lines its maker reads
    "d5ray/failures/tracebacks.py",  # one line, where Rich itself may be what is missing
    "ops/tensorflow/library.py",  # what TensorFlow says when it is imported
)
PRODUCT = ("d5ray", "actors", "dashboards", "ops", "recipes")
CLIPBOARD = "\x1b]52;c;cm0gLXJmIH4=\x07"  # a terminal puts `rm -rf ~` where the user pastes from
NASTY = (
    "[/x]",
    "[red]",
    ":boom:",
    CLIPBOARD,
    "\x9b31m",
    "\u202eSSAP",
    "a\u200bb",
    "\r\n✔ PASS",
    "漢字",
    "\ue000",
    "\x00",
)
PRINTS = re.compile(
    r"(print|typer\.s?echo|os\.system|traceback\.print_\w+|sys\.(__)?std(out|err)(__)?(\.buffer)?\.write)\("
    r"|os\.write\([12]$"
)
NAMES = ("print", "echo", "secho", "system", "write", "print_exc", "print_exception")
OWN = re.compile(r"\x1b\[[0-9;]*m")  # colours, which are Rich's

texts = st.lists(st.sampled_from(NASTY) | st.text(max_size=8), max_size=4).map("".join)
words = texts.map(lambda text: text.encode("utf-8", "replace").decode())  # as Arrow and ONNX hold them


# -- one place ---------------------------------------------------------------------------------------------


def printing(tree: ast.Module) -> Iterator[str]:
    """What in a file writes to the terminal by itself."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from (name for name in names if name.partition(".")[0] in ("rich", "click"))
        elif isinstance(node, ast.Call) and _name(node.func) in NAMES:
            called = f"{ast.unparse(node.func)}({ast.unparse(node.args[0]) if node.args else ''}"
            if PRINTS.match(called):
                yield called.partition("(")[0]


def _name(called: ast.expr) -> str:
    """The last word of what is called."""
    return (
        called.id
        if isinstance(called, ast.Name)
        else called.attr
        if isinstance(called, ast.Attribute)
        else ""
    )


@pytest.mark.full
def test_all_that_is_printed_passes_one_place() -> None:
    """No file but `console` knows Rich, prints, echoes or writes to the standard streams."""
    found = {
        name: calls
        for name, tree in sources(*PRODUCT).items()
        if name not in ALLOWED and (calls := sorted(set(printing(tree))))
    }
    assert found == {}
    bad = "import rich.table\nprint(1)\nsys.stderr.write('x')\ntyper.echo('y')\ntraceback.print_exc()"
    assert len(list(printing(ast.parse(f"{bad}\nos.write(2, b'x')")))) == 6


# -- what is shown -----------------------------------------------------------------------------------------


@given(texts)
@example("".join(NASTY))
def test_a_text_shows_every_character(text: str) -> None:
    """What can be seen stays as it is, and of all others there is something to be seen; lines are kept."""
    shown = one_line(text)
    assert not {unicodedata.category(c) for c in shown} & HIDDEN
    assert (shown == text) == (not {unicodedata.category(c) for c in text} & HIDDEN)
    assert one_line(shown) == shown  # again changes nothing
    assert len(visible(text).split("\n")) == text.count("\n") + 1
    shown.encode()


class Terminal(io.StringIO):
    """What a person sees, with all that the terminal obeys."""

    def isatty(self) -> bool:
        """As a terminal says."""
        return True


def test_bytes_on_a_terminal_show_every_character() -> None:
    """Also of a letter that comes in two pieces."""
    with contextlib.redirect_stdout(Terminal()) as terminal:
        shown = console.data()
        for piece in (b"\xc3", b"\xa4\x1b[1m\xff"):
            shown.write(piece)
    assert terminal.getvalue() == visible("ä\x1b[1m\\xff")


def seen(*arguments: str) -> str:
    """What a command prints on a terminal; only a `D5Error` may end it. Every control in it is a colour."""
    terminal = Terminal()
    with contextlib.redirect_stdout(terminal), contextlib.redirect_stderr(terminal):
        try:
            app(list(arguments), standalone_mode=False)
        except D5Error as error:
            console.err().print(console.lines(f"error: {error}"))
        except typer.Exit:
            pass
    text = OWN.sub("", terminal.getvalue())
    obeyed = {c for c in text if unicodedata.category(c) in HIDDEN} - {"\n"}
    assert not obeyed, (arguments, obeyed)
    return text


def kept(root: Path, name: str, text: str) -> None:
    """A run in which every text that a stranger may choose is this one."""
    writer = RunWriter(root, name)
    row = dict.fromkeys(
        ("recipe", "stop_reason", "verdict", "host", "git", "d5ray_version", "ray_address"), text
    )
    held = {"experiment": json.dumps({"model": text}), "fixed": json.dumps({"a": text}), "criteria": "[]"}
    writer.open(row | held | {"seed": 1, "agents": 1, "status": text or "?"})
    record(writer, values_of(1, 12))
    recorder = Recorder(
        run_id=name, agent=text, rank=1, node=text, send=writer.append, send_events=writer.append_events
    )
    recorder.record("step_time", 1.0, step=0, scope=text, status=text)
    recorder.event(text, reason=text)
    recorder.flush()
    known = {"run_id": name, "node": text, "key": text, "value": text}
    writer.write_table("environment", table_of("environment", [known]))
    odd: Any = (name, text, text, "<=", 1.0, 0.5, 0.4, 0.6, 7, text, text, text)
    side: Any = (name, f"speedup(ours={text}, base=b)", "1", ">=", 1.0, 0.5, None, None, 7, text, text, text)
    writer.write_table("verdicts", table_of("verdicts", [Verdict(*odd).row, Verdict(*side).row]))
    writer.close()


@pytest.mark.full
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=words, name=words)
@example(text="".join(NASTY), name="[x]" + CLIPBOARD)
def test_a_folder_of_others_is_shown_and_commands_nothing(
    text: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command that shows a run, on a terminal, whatever its texts and its own name are."""
    name = re.sub(r"[/\0]|^\.*$|^last$", "_", name)[:40]
    with tempfile.TemporaryDirectory() as home:
        monkeypatch.setenv("D5RAY_HOME", home)
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setenv("TERM", "xterm-256color")
        kept(Path(home) / "runs", "a", text)
        kept(Path(home) / "runs", f"b{name}", text)
        for arguments in (
            ("runs",), ("show", "a"), ("show", f"b{name}"), ("show", "a", "--environment"), ("check", "a"),
            ("compare", "a", f"b{name}"), ("replay", "a"), ("sql", f"b{name}", "from samples"),
            ("sql", "a", "select * from environment"), ("sql", "--format", "csv", "a", "from runs"),
            ("sql", "a", "--json", "from events"), ("show", "--json", "a"), ("show", text or "?"),
            ("export", "a", "--to", text), ("timeline", "a", "--output", f"{home}/{name}.json"),
            ("network", f"{home}/{name}.onnx"),
        ):  # fmt: skip
            if not any("\0" in word for word in arguments):  # which no program can be given
                seen(*arguments)
        if text:
            query = f"select '{text.replace(chr(39), '')}' as x"
            if "\0" not in query:
                assert one_line(text.replace("'", ""))[:150].strip() in seen("sql", "a", query)


def test_a_network_of_others_is_shown_and_commands_nothing(tmp_path: Path) -> None:
    """Names in an ONNX file: of the graph, a node, what it makes, and an operator's domain."""
    evil = "".join(NASTY).replace("\0", "")
    node = onnx.helper.make_node("Relu", ["x"], [evil], name=evil)
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node], evil, [value("x", 1, [1, 2])], [value(evil, 1, [1, 2])],
        [onnx.numpy_helper.from_array(np.ones(2, "float32"), evil + "w")],
    )  # fmt: skip
    file, other = tmp_path / "evil.onnx", tmp_path / "other.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), file)
    graph.node[0].op_type = "Tanh"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), other)
    assert "␛]52;c;" in seen("network", str(file))
    assert "Relu" in seen("network", str(file), "--compare", str(other))
    seen("network", str(file), "--stages", "1")
    seen("network", str(file), "--cut", evil)
    graph.node[0].domain = evil
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), file)
    assert "error" in seen("network", str(file))


def test_a_bar_shows_names_as_they_are() -> None:
    """A progress bar's line: a name in brackets, with a terminal's command in it."""
    terminal = Terminal()
    with contextlib.redirect_stderr(terminal):
        bar = console.progress(console.Field("{task.description}"), show=True, auto_refresh=False)
        bar.add_task(f"[red]{CLIPBOARD}", total=1)
        with bar:
            bar.refresh()
    assert "[red]␛]52;c;" in terminal.getvalue()
    assert "\x1b]52" not in terminal.getvalue()


def test_who_stops_reading_changes_no_verdict() -> None:
    """`d5ray … | head -0`: what is not read is dropped; the exit code is not Rich's 1, which means FAIL."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as gone, contextlib.redirect_stdout(gone):  # noqa: PTH123
        console.out().print("nobody reads this")
        console.write("{}")
        assert Path(f"/proc/self/fd/{gone.fileno()}").readlink() == Path(os.devnull)
