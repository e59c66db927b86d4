"""Folders of runs that are wrong in one way each, as an accident or a stranger leaves them"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from d5ray.metrics.judge.criteria import Verdict
from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.record.schema import TABLES, table_of
from d5ray.metrics.record.store import RunWriter
from tests.metrics.small_runs import METRICS, record, values_of


def good(root: Path, name: str, seed: int = 1) -> Path:
    """A complete run of two tables with verdicts, events and an environment; its folder."""
    writer = RunWriter(root, name)
    described = {"experiment": json.dumps({"agents": 1}), "fixed": "{}", "mutable": "{}", "criteria": "[]"}
    writer.open(described | {"seed": seed, "recipe": "small", "recipe_hash": "0", "agents": 1, "steps": 40})
    record(writer, values_of(seed, 40))
    recorder = Recorder(
        run_id=name, agent="agent-1", rank=1, node="n", send=writer.append, send_events=writer.append_events
    )
    recorder.event("failed", reason="odd")
    recorder.flush()
    writer.write_table(
        "environment", table_of("environment", [{"run_id": name, "node": "n", "key": "k", "value": "v"}])
    )
    verdict = Verdict(name, METRICS[0], "s", "<=", 9.0, 0.5, 0.4, 0.6, 7, "steps", "PASS", "")
    writer.write_table("verdicts", table_of("verdicts", [verdict.row]))
    writer.update_run(status="completed", verdict="PASS")
    writer.close()
    return writer.folder


def _changed(table: str, column: str, value: Any) -> Callable[[Path], None]:
    """A value in all rows of a column; of another type, if it is one."""

    def change(folder: Path) -> None:
        file = folder / f"{table}.parquet"
        found = pq.read_table(file)
        kind = TABLES[table].field(column).type
        try:
            values = pa.array([value] * found.num_rows, pa.utf8() if pa.types.is_dictionary(kind) else kind)
        except (pa.ArrowException, TypeError):
            values = pa.array([value] * found.num_rows)
        pq.write_table(found.set_column(found.schema.get_field_index(column), column, values), file)

    return change


def _not_utf8(table: str, column: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / f"{table}.parquet"
        found = pq.read_table(file)
        words = pa.array([b"\xff\xfe\x80"] * found.num_rows, pa.binary())
        text = pa.Array.from_buffers(pa.utf8(), len(words), words.buffers())
        pq.write_table(found.set_column(found.schema.get_field_index(column), column, text), file)

    return change


def _cut(name: str, share: float) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: int(share * len(data))])

    return change


def _noise(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        for at in range(8, len(data) - 8, 37):
            data[at] ^= 0x5A
        (folder / name).write_bytes(bytes(data))

    return change


def _folder(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return change


def _without(table: str, column: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / f"{table}.parquet"
        pq.write_table(pq.read_table(file).drop_columns([column]), file)

    return change


def _rows(table: str, times: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / f"{table}.parquet"
        found = pq.read_table(file)
        pq.write_table(pa.concat_tables([found] * times) if times else found.slice(0, 0), file)

    return change


def _stream(folder: Path) -> None:
    """Rubbish where rows are kept while a run goes on."""
    (folder / "samples.parquet").unlink()
    (folder / "samples.arrows").write_bytes(os.urandom(4096))


def _text(folder: Path) -> None:
    """A file where the folder was."""
    _empty(folder)
    folder.rmdir()
    folder.write_text("x")


def _empty(folder: Path) -> None:
    """Nothing in it."""
    shutil.rmtree(folder)
    folder.mkdir()


def _pipe(folder: Path) -> None:
    (folder / "samples.parquet").unlink()
    os.mkfifo(folder / "samples.parquet")


JSON = ("{", "[]", "7", "null", '"x"', '{"agents": []}', "NaN", "[" * 2000)
NAN, INF = float("nan"), float("inf")
ODD: dict[str, dict[str, tuple[Any, ...]]] = {  # values of all rows of a column
    "runs": {
        "status": ("",), "seed": (None, 2**63 - 1), "agents": (None, -3, "two"), "steps": (-1,),
        "started": (None,), "verdict": ("MAYBE",), "run_id": ("",), "rows": (None,), "recipe": (None,),
        **dict.fromkeys(("experiment", "fixed", "mutable", "criteria", "graph"), JSON),
    },
    "samples": {
        "value": (None, NAN, INF, "text"), "step": (None, -1), "rank": (-1,), "unit": ("%",),
        "scope": ("[", "x[y] z"), "t_mono": (-1,), "metric": ("",), "agent": ("",), "rep": (-1,),
        "seq": (0,), "t_wall": (None,), "epoch": (None,),
    },
    "verdicts": {
        "verdict": ("MAYBE",), "target": (NAN,), "n": (-1,), "relation": ("==",), "low": (NAN,),
        "metric": ("f(a=", "speedup(ours=, base=)"), "value": (-INF,),
    },
    "events": {"rank": (-5,), "duration": (NAN,), "t_mono": (-(2**62),), "detail": JSON},
    "environment": {"node": ("",)},
    "metrics": {"direction": ("up",), "kind": ("?",)},
}  # fmt: skip
WORDS = {
    "runs": ("recipe", "status", "verdict"), "samples": ("metric",), "events": ("name",),
    "environment": ("value",), "verdicts": ("metric", "verdict"), "metrics": ("name",),
}  # fmt: skip
MISSING = {"runs": ("status", "started", "graph", "run_id"), "samples": ("metric", "value", "seq")}
BROKEN: dict[str, Callable[[Path], None]] = {
    **{f"{each} cut at {share}": _cut(f"{each}.parquet", share) for each in TABLES for share in (0.0, 0.5)},
    **{f"noise in {table}": _noise(f"{table}.parquet") for table in TABLES},
    **{f"{table} is a folder": _folder(f"{table}.parquet") for table in TABLES},
    **{f"{table} without rows": _rows(f"{table}", 0) for table in TABLES},
    **{f"{table} twice": _rows(f"{table}", 2) for table in TABLES},
    **{
        f"{table}.{column} is {str(value)[:9]!r}": _changed(table, column, value)
        for table, columns in ODD.items()
        for column, values in columns.items()
        for value in values
    },
    **{
        f"{t}.{column} is no UTF-8": _not_utf8(t, column)
        for t, columns in WORDS.items()
        for column in columns
    },
    **{f"{t} without {column}": _without(t, column) for t, columns in MISSING.items() for column in columns},
    "rubbish for a stream": _stream,
    "a pipe for samples": _pipe,
    "a text": _text,
    "empty": _empty,
}
