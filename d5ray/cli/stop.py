"""`d5ray stop`: end a run as Ctrl-C in its terminal does"""

import os
import platform
import signal
import time
from typing import TYPE_CHECKING

from d5ray.errors import AccessError, AgentError, ConfigurationError
from d5ray.recipes.engine.parsing.options import Json, Name, reading

if TYPE_CHECKING:
    from d5ray.metrics.record.reader import Run

STOP_SECONDS = 30.0  # for a run to end
LOOK_SECONDS = 0.05


@reading
def stop(run: Name, json: Json = False) -> None:
    """End a run that goes on, as Ctrl-C does: what was measured is kept, its row says interrupted."""
    from d5ray.display.console import as_json, out  # noqa: PLC0415 - quick for those who only want help
    from d5ray.metrics.record.reader import Run  # noqa: PLC0415

    found = Run.find(run)
    status = _ended(found)
    if json:
        as_json({"run": found.name, "status": status})
    else:
        out().print(f"{found.name}  {status}")


def _ended(run: "Run") -> str:
    """Interrupt a run's driver; the status with which it ended."""
    row = run.row
    if row["status"] != "running":
        raise ConfigurationError(f"the run {run.name} is {row['status']}: there is nothing to stop")
    if row["host"] != platform.node():
        raise ConfigurationError(
            f"the run {run.name} goes on on {row['host']}, this is {platform.node()}: stop it there, or its "
            "job with `ray job stop`"
        )
    pid = row["driver_pid"]
    try:
        os.kill(pid, signal.SIGTERM)
    except PermissionError as error:
        raise AccessError(f"the run {run.name} is of another user: process {pid} may not be ended") from error
    end = time.monotonic() + STOP_SECONDS
    while (status := str(run.row["status"])) == "running":
        if time.monotonic() > end:
            raise AgentError(
                f"the run {run.name} has not ended within {STOP_SECONDS:g} s: `kill -9 {pid}` ends it"
            )
        time.sleep(LOOK_SECONDS)
    return status
