"""All that d5ray uses of Ray which Ray calls private, each with what is done where a Ray does not have it

Nothing else of the product says `ray._private`, and every function here does without.
"""

import asyncio
import atexit
import json
import os
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any, Final

import ray

Prints = Callable[[dict[str, Any], bool], None]
WORKER: Final = "_private.worker"
JOB: Final = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # set by Ray's job manager for the program it starts
PRINTS: Final = "print_to_stdstream"
UTILS: Final = "_private.utils"
DIE_WITH_PARENT: Final = "set_kill_on_parent_death_linux"

# What a Ray without it loses, by where it stands in Ray; see docs/guide/installing.md.
USED: Final = {
    f"{WORKER}.{PRINTS}": "Ray shows what actors print unfiltered, including control characters",
    f"{WORKER}.shutdown": "after an embedded Ray was killed, the exit code may be Ray's own, 1",
    f"{WORKER}._global_node": "of an embedded Ray only the head is monitored, not its raylet",
    f"{WORKER}.global_worker": "of a cluster only the head is monitored; its folder is not found",
    f"{WORKER}.get_dashboard_url": "the address of Ray's dashboard is not printed",
    f"{UTILS}.{DIE_WITH_PARENT}": "a SIGTERM to the whole process group ends Ray before the run",
    "dashboard.modules.job.common.JobInfoStorageClient": "a submitted job does not show its recipe's name",
}


def found(path: str) -> Any:
    """The part of Ray at this place; None if it is not there."""
    return reduce(lambda part, name: getattr(part, name, None), path.split("."), ray)


def prints() -> Prints | None:
    """The function that shows what actors print, as Ray has it."""
    shown: Prints | None = found(f"{WORKER}.{PRINTS}")
    return shown


def print_by(shown: Prints) -> None:
    """Let this function show what actors print; where Ray has none of its own, it goes on by itself."""
    if (worker := found(WORKER)) is not None and hasattr(worker, PRINTS):
        setattr(worker, PRINTS, shown)


def started() -> tuple[Mapping[str, list[Any]], str] | None:
    """The processes of the Ray that this process started, by kind, and the address of its head."""
    node = found(f"{WORKER}._global_node")
    processes, address = getattr(node, "all_processes", None), getattr(node, "gcs_address", None)
    return None if processes is None or address is None else (processes, str(address))


def raylet_socket() -> str | None:
    """The socket of this machine's raylet."""
    socket: str | None = getattr(found(f"{WORKER}.global_worker.node"), "raylet_socket_name", None)
    return socket


def session_folder() -> Path | None:
    """The folder of the session of the Ray that this process is connected to."""
    told = getattr(found(f"{WORKER}.global_worker.node"), "get_session_dir_path", None)
    return None if told is None else Path(told())


def leave_connected() -> None:
    """Do not disconnect at the end of this process."""
    if (shutdown := found(f"{WORKER}.shutdown")) is not None:
        atexit.unregister(shutdown)


def dashboard() -> str | None:
    """The address of Ray's dashboard, HOST:PORT, if there is one."""
    told = found(f"{WORKER}.get_dashboard_url")
    url: str | None = None if told is None else told()
    return url


def head_client() -> Any:
    """The client by which this process asks the head of Ray; None if it has none."""
    return found(f"{WORKER}.global_worker.gcs_client")


def at_start_of_processes() -> Callable[[], object] | None:
    """The function that Ray calls in each process that it starts, before that becomes another program."""
    called: Callable[[], object] | None = found(f"{UTILS}.{DIE_WITH_PARENT}")
    return called


def start_processes_by(called: Callable[[], object]) -> None:
    """Let Ray call this in each process that it starts."""
    setattr(found(UTILS), DIE_WITH_PARENT, called)


def submitted() -> bool:
    """True if this process is the program of a submitted job."""
    return JOB in os.environ


def annotate(metadata: dict[str, str]) -> None:
    """Add metadata to this submitted job, so that the dashboard shows them; needs a connected Ray.

    Ray takes a submitted job's metadata from the submission alone and shows nothing that the driver sets;
    the store of it is semi-public, and so this is left out where it has changed.
    """
    try:
        from ray.dashboard.modules.job.common import JobInfoStorageClient  # noqa: PLC0415

        submission = json.loads(os.environ[JOB])["metadata"]["job_submission_id"]
        client = JobInfoStorageClient(head_client())
        asyncio.run(_add(client, submission, metadata))
    except (ImportError, AttributeError, KeyError, TypeError, RuntimeError, ValueError):
        return


async def _add(client: object, submission: str, metadata: dict[str, str]) -> None:
    info = await client.get_info(submission)  # type: ignore[attr-defined]
    named = dict(info.metadata or {})
    if named.get("job_name") == submission:  # Ray's own choice; whoever submitted it made none
        del named["job_name"]
    info.metadata = {**metadata, **named}
    await client.put_info(submission, info)  # type: ignore[attr-defined]
