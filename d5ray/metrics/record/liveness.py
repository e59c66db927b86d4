"""The row of a run or series as people read it: times as datetime, and "died" where its driver is gone"""

import platform
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

START_TIME_FIELD: Final = 19  # of /proc/<pid>/stat after the name; man 5 proc counts it as the 22nd
# s; a process younger than that after its run began may still be the run's driver, where the row has no start
_LONGEST_CLOCK_STEP = 60.0


def start_of(pid: int | str) -> int | None:
    """The ticks between the start of the machine and that of a process, which tell it from later ones.

    No setting of a clock changes them. None where there is no such process, or no Linux.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[START_TIME_FIELD])


def row_of(table: pa.Table) -> dict[str, Any]:
    """The first row, times as datetime in UTC.

    The status is "died" where the row still says "running" and its driver is gone from this host.
    """
    for name in ("started", "ended"):  # as datetime has no nanoseconds
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table[name].cast(pa.timestamp("us", "UTC"), safe=False))
    row: dict[str, Any] = table.slice(0, 1).to_pylist()[0]
    if row["status"] == "running" and row["host"] == platform.node() and _is_gone(row):
        row["status"] = "died"
    return row


def with_status(table: pa.Table) -> pa.Table:
    """The table `runs` of one run with the status that `row_of` tells; the same table where it is that."""
    if table.num_rows != 1 or pc.any(pc.not_equal(table["status"], "running")).as_py():
        return table
    found, place = row_of(table)["status"], table.schema.get_field_index("status")
    if found == "running":
        return table
    return table.set_column(place, table.schema.field(place), pa.array([found]).cast(table["status"].type))


def _is_gone(row: dict[str, Any]) -> bool:
    """True if the driver that the row names has ended; its number may belong to a younger process now."""
    import psutil  # noqa: PLC0415 (agents that only record never need it)

    if row["driver_pid"] is None:
        return False
    try:
        process = psutil.Process(row["driver_pid"])
        if process.status() == psutil.STATUS_ZOMBIE:
            return True
        if (start := row.get("driver_start")) is not None:
            return bool(start_of(row["driver_pid"]) != start)
        started = row["started"]
        return started is not None and process.create_time() > started.timestamp() + _LONGEST_CLOCK_STEP
    except psutil.NoSuchProcess:
        return True
