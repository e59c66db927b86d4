"""Jobs of a Ray cluster: a command that goes on there without this machine, and how it is ended"""

import os
import shlex
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import psutil
from ray.job_submission import JobSubmissionClient

from d5ray.actors.session import session
from d5ray.actors.session.in_thread import in_thread
from d5ray.errors import ConfigurationError, PlacementError, first_line

T = TypeVar("T")
ANSWER_SECONDS: Final = 30.0  # for the cluster to take a job
STOP_SECONDS: Final = 20  # for a job to end after SIGTERM, before Ray kills it
LOOK_SECONDS: Final = 0.2
HANDED_ON: Final = ("D5RAY_HOME", "D5RAY_DATA")  # where runs go, and where data are


def submit(address: str, words: Sequence[str], name: str, folder: str) -> str:
    """Let the cluster run Python with these words in a copy of the folder; gives the job's name."""
    variables = {key: os.environ[key] for key in HANDED_ON if key in os.environ}
    environment = {
        "working_dir": folder,
        "py_modules": session.own_folders(),
        "env_vars": variables | {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS)},
    }
    python = sys.executable if _is_here(address) else "python"
    job: str = _asked(
        address,
        lambda client: client.submit_job(
            entrypoint=shlex.join([python, *words]),
            submission_id=name,
            runtime_env=environment,
            metadata={"job_name": name},
        ),
    )
    return job


def stop(address: str, name: str) -> str:
    """End a job, which gets SIGTERM; gives its last status. Raises `ConfigurationError` where it is none."""

    def end(client: JobSubmissionClient) -> str:
        try:
            client.stop_job(name)
            until = time.monotonic() + STOP_SECONDS + ANSWER_SECONDS / 2
            while not (status := client.get_job_status(name)).is_terminal() and time.monotonic() < until:
                time.sleep(LOOK_SECONDS)
        except RuntimeError as error:
            raise ConfigurationError(
                f"the cluster at {address} has no job {name!r} ({first_line(error)[:200]}): `ray job list "
                f"--address {address}` shows those that it has"
            ) from error
        return str(status.value)

    return _asked(address, end, STOP_SECONDS + ANSWER_SECONDS)


def _asked(address: str, ask: Callable[[Any], T], seconds: float = ANSWER_SECONDS) -> T:
    """The answer of the cluster's dashboard, which takes jobs; `PlacementError` where none answers."""
    session.check_answers(address)
    os.environ["RAY_ADDRESS"] = address  # Ray prefers it to what it is told
    try:
        return in_thread(lambda: ask(JobSubmissionClient(address))).result(seconds)
    except TimeoutError:
        why = f"it did not answer within {seconds:g} s"
    except (OSError, RuntimeError, ValueError) as error:
        why = first_line(error)[:200]
    raise PlacementError(
        f"the cluster at {address} takes no job: {why}; jobs need its dashboard: start the head with it "
        "(`pip install 'ray[default]'`), or run without --detach"
    )


def _is_here(address: str) -> bool:
    """True if the head is on this machine, so that it has this interpreter."""
    host = address.rpartition(":")[0]
    own = {each.address for addresses in psutil.net_if_addrs().values() for each in addresses}
    return address == "auto" or host in own | {"localhost", socket.gethostname()}
