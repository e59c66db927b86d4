"""The Ray that a run uses: an embedded one that lives and dies with the driver, or a cluster it joins."""

import atexit
import contextlib
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.job_config import JobConfig

from d5ray.actors.session import ray_private, reaper
from d5ray.actors.session.around_start import environment_of, group_of_their_own, signals_kept
from d5ray.actors.session.ray_processes import ADVICE, HEAD_SECONDS, Children, Elsewhere, Vital
from d5ray.actors.session.starter import Starter
from d5ray.actors.session.tokens import check_token
from d5ray.checks import check_address
from d5ray.display.visible_text import one_line
from d5ray.errors import D5Error, PlacementError, RayLost, first_line
from d5ray.failures.program_state import as_before
from d5ray.failures.tracebacks import keep
from d5ray.identity import checkout
from d5ray.identity.shadowing import check_shadowing

_RAY_PRINTS = ray_private.prints()  # what prints lines of the actors, and Ray's own
_ENDS = ("A worker died or was killed", "Raylet is terminated")  # begin Ray's own messages about these
FOLDER_BYTES = 32 << 20  # of sockets and logs
LOOK_SECONDS = 0.05  # between two looks whether Ray lives, while it is asked something
ANSWER_SECONDS = 5.0  # within which a cluster's address must answer

T = TypeVar("T")


@dataclass(frozen=True)
class Session:
    """A connection to a running Ray."""

    address: str
    dashboard: str | None  # the address of its dashboard, if there is one
    embedded: bool
    seconds: float  # that connecting took


@dataclass
class _Embedded:
    reaper: "subprocess.Popen[bytes]"
    folder: str


_session: Session | None = None
_embedded: _Embedded | None = None
_starter: Starter | None = None
_vital: Vital | None = None
_abandoned = False  # whether this process is connected to a Ray that has ended
_handlers: dict[logging.Handler, int] = {}  # of Ray's logger, with the levels that they had


def check_alive() -> None:
    """Raise `RayLost` as soon as a process has ended without which Ray cannot go on."""
    if _vital is not None:
        _vital.check()


def guarded(call: Callable[[], T], seconds: float = HEAD_SECONDS) -> T:
    """The result of a call that asks the head of Ray; `RayLost` as soon as that has ended, or is silent.

    Ray itself would wait for a minute in C++, and then end this process with exit code 1.
    """
    check_alive()
    return _answer(call, seconds, check_alive)


def _answer(call: Callable[[], T], seconds: float, look: Callable[[], None]) -> T:
    """The result of a call in a thread, beside which `look` is called; `RayLost` after that time."""
    result = in_thread(call)
    end = time.monotonic() + seconds
    while not wait([result], timeout=LOOK_SECONDS).done:
        look()
        if time.monotonic() > end:
            raise RayLost(f"the head of Ray has not answered for {seconds:g} s: {ADVICE}")
    return result.result()


def lost() -> bool:
    """True if a process that Ray needs has ended."""
    try:
        check_alive()
    except RayLost:
        return True
    return False


def processes(victim: str) -> list[int]:
    """The processes of this machine that are Ray's 'raylet', its 'gcs', or its 'head', which has both."""
    kinds = {"raylet": ("raylet",), "gcs": ("gcs_server",), "head": ("gcs_server", "raylet")}[victim]
    known = {} if _vital is None else _vital.pids
    return [known[kind] for kind in kinds if kind in known]


def embeds(address: str | None) -> bool:
    """True if `connect` to this address means a Ray of this machine alone."""
    elsewhere = ray.is_initialized() and (_session is None or not _session.embedded)
    return not elsewhere and (address or os.environ.get("RAY_ADDRESS") or "local") == "local"


def connect(address: str | None, *, cpus: int, metadata: dict[str, str], quiet: bool = False) -> Session:
    """The Ray at `address`, or at RAY_ADDRESS, or, if neither is given, an embedded one with `cpus` CPUs.

    A Ray that this process already uses is used again. The metadata appear on the job in the dashboard, which
    shows the run's name as the job's.
    Raises `PlacementError` if the address does not answer within seconds.
    """
    global _session, _vital
    if _starter is not None:
        _starter.settle()
    check_alive()
    if _abandoned:
        raise RayLost("the Ray of this program has ended: start the program anew to use another")
    wanted = address or os.environ.get("RAY_ADDRESS")
    if ray.is_initialized():
        if _session is None:
            _session = _describe(embedded=False, seconds=0.0)
        if not _session.embedded or not wanted or wanted == "local":
            return _grown(_session, cpus)
        shutdown()
    check_shadowing()
    begin = time.perf_counter()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Since 2.60 Ray warns about this at every actor that asks for no GPU.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    name = metadata.get("run") or metadata.get("task", "")
    job = JobConfig(metadata={"job_name": name} | metadata)
    with signals_kept():
        if wanted and wanted != "local":
            check_answers(wanted)
            _join(wanted, job, quiet)
        else:
            with group_of_their_own():
                _embed(cpus, job, quiet)
    _session = _describe(embedded=_embedded is not None, seconds=time.perf_counter() - begin)
    _vital = _watched(_session)
    return _session


@as_before()
def shutdown() -> None:
    """Disconnect; an embedded Ray ends, with all its processes and its folder. Harmless when nothing runs.

    A start that was interrupted and is still under way goes on making processes and files: its own end, or
    that of this process, ends them.
    """
    global _session, _vital
    if _starter is not None and _starter.under_way:
        return
    try:
        if ray.is_initialized() and not _abandoned:
            check_alive()
            _answer(ray.shutdown, HEAD_SECONDS, lambda: None)  # which ends Ray's processes itself
    except RayLost:
        abandon()
    _session = _vital = None
    while _handlers:
        handler, level = _handlers.popitem()
        handler.setLevel(level)
    end_processes()
    if _starter is not None:
        _starter.release()


def leave(code: int) -> None:
    """Exit with this code, at the end of a program that was interrupted: Ray may have been, and is not asked.

    This process becomes a small one that waits for the reaper: Ray's threads would end it with exit code 1
    as soon as they notice that the raylet is gone. Returns where it has no embedded Ray.
    """
    if _embedded is None or (_starter is not None and _starter.under_way):
        return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    waiting = f"import os; os.waitpid({_embedded.reaper.pid}, 0); os._exit({code})"
    os.execv(sys.executable, [sys.executable, "-S", "-E", "-c", waiting])  # which closes the reaper's pipe


def end_processes() -> None:
    """End all processes of an embedded Ray at once, and remove its folder; this process stays connected."""
    global _embedded
    embedded, _embedded = _embedded, None
    if embedded is not None:
        assert embedded.reaper.stdin is not None
        embedded.reaper.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            embedded.reaper.wait(timeout=2 * reaper.PATIENCE_SECONDS)
        shutil.rmtree(embedded.folder, ignore_errors=True)


def abandon() -> None:
    """Stay connected to a Ray that has ended.

    To disconnect, Ray asks the raylet; without one it ends this process at once, with exit code 1.
    """
    global _abandoned
    _abandoned = True
    ray_private.leave_connected()


def _watched(session: Session) -> Vital | None:
    if session.embedded and (started := ray_private.started()) is not None:
        return Children.of_ray(*started)
    return Elsewhere(session.address, ray_private.raylet_socket())


def _start(environment: dict[str, str], **arguments: Any) -> None:
    """`ray.init`, which Ctrl-C interrupts at once; Ray's processes inherit the environment."""
    global _starter

    def start() -> None:
        with environment_of(environment):
            ray_private.print_by(_shown)
            with _silent_start():
                ray.init(logging_level=logging.CRITICAL, **arguments)  # why it fails is in what it raises

    _starter = Starter(start, shutdown)
    try:
        _starter.run()
    except Exception:
        shutdown()
        raise


@contextlib.contextmanager
def _silent_start() -> Iterator[None]:
    """Let Ray's logger have the program's level afterwards; what handles its records shows errors alone."""
    logger = logging.getLogger("ray")
    level = logger.level
    try:
        yield
    finally:
        logger.setLevel(level)
    _handlers.update({each: each.level for each in logger.handlers if each not in _handlers})
    for each in logger.handlers:
        each.setLevel(logging.ERROR)


def _shown(data: dict[str, Any], ignore_prefix: bool) -> None:
    """Show the lines that Ray hands on as text: they may be a stranger's.

    Those of Ray itself go to standard error, since they are no result. What it says of a process's end, and
    of its own, stays out: the error of the call that waited says it, and `RayLost`.
    """
    if _abandoned or lost():
        return
    lines = [one_line(line) for text in data.get("lines", ()) for line in text.splitlines() or [""]]
    own = not str(data.get("pid")).isdigit()
    if _RAY_PRINTS is not None and not (own and lines and lines[0].startswith(_ENDS)):
        _RAY_PRINTS(data | {"lines": lines, "is_err": data["is_err"] or own}, ignore_prefix)


def check_answers(address: str) -> None:
    """Raise unless a gRPC server answers at this address, and takes this process's token if it asks for one.

    Ray itself would try for most of a minute.
    """
    import grpc  # noqa: PLC0415 - only where a cluster is joined

    if check_address(address) == "auto":
        return
    channel = grpc.insecure_channel(address)
    try:
        grpc.channel_ready_future(channel).result(timeout=ANSWER_SECONDS)
        check_token(channel, address)
    except grpc.FutureTimeoutError:
        raise PlacementError(
            f"no Ray answers at {address} within {ANSWER_SECONDS:g} s: check the address and that the head "
            "runs (`ray start --head --port=PORT`), or leave --address out to use an embedded Ray"
        ) from None
    finally:
        channel.close()


def reachable(address: str) -> str:
    """A line about the Ray at this address; raises as `connect` does if it does not answer."""
    connect(address, cpus=0, metadata={}, quiet=True)
    resources = ray.cluster_resources()
    nodes = sum(node["Alive"] for node in ray.nodes())
    shutdown()
    cpus, gpus = resources.get("CPU", 0), resources.get("GPU", 0)
    return f"{address} answers: {nodes} nodes, {cpus:g} CPUs, {gpus:g} GPUs"


def folder_of(address: str) -> Path:
    """The folder of the session of the Ray at this address, on this node; raises as `connect` does."""
    connect(address, cpus=0, metadata={"task": "find the session's folder"}, quiet=True)
    folder = ray_private.session_folder()
    shutdown()
    if folder is None:
        raise PlacementError(
            f"Ray {ray.__version__} does not say where the folder of its session is: d5ray knows it of the "
            "versions that it is tested with, see docs/guide/installing.md"
        )
    return folder


def own_folders() -> list[str]:
    """The folders of d5ray's code, for nodes that may not have it."""
    package = importlib.util.find_spec("d5ray")
    assert package is not None and package.submodule_search_locations
    folders = [package.submodule_search_locations[0]]
    if checkout.is_benchmark(checkout.PACKAGE):  # one of them is run
        folders.append(str(checkout.benchmarks()))
    return [str(Path(folder)) for folder in folders]


def _join(address: str, job: JobConfig, quiet: bool) -> None:
    metadata = dict(job.metadata)  # Ray puts the submission's own into it
    if not ray_private.submitted():
        # Not a submitted job, which brings its folder along: the nodes may not have d5ray.
        job.set_runtime_env({"py_modules": own_folders()})
    try:
        _start({}, address=address, job_config=job, log_to_driver=not quiet)
    except ConnectionError as error:
        raise PlacementError(
            f"no Ray found at {address!r}: {error}; start one with `ray start --head`, or leave --address "
            "out; if it asks for a token: `export RAY_AUTH_MODE=token`"
        ) from error
    if ray_private.submitted():
        ray_private.annotate(metadata)


def _embed(cpus: int, job: JobConfig, quiet: bool) -> None:
    global _embedded
    marker = uuid.uuid4().hex
    folder = _folder()
    keeper = subprocess.Popen(
        [sys.executable, "-S", "-E", reaper.__file__, marker, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    _embedded = _Embedded(keeper, folder)
    atexit.register(shutdown)
    try:
        _start(
            {"D5RAY_SESSION": marker, "TMPDIR": folder},
            address="local",
            num_cpus=max(cpus, os.cpu_count() or 1),
            job_config=job,
            log_to_driver=not quiet,
            _temp_dir=f"{folder}/r",
        )
    except D5Error:
        raise
    except Exception as error:
        raise PlacementError(
            f"Ray did not start on this machine: {first_line(error)[:200]}: look whether memory, processes "
            f"(`ulimit -u`) and /tmp suffice; what Ray says of it is in {keep(error)}"
        ) from error


def _folder() -> str:
    """A new folder for Ray's sockets and logs, with room for them: Ray itself would try for minutes.

    Ray opens its own folder to everyone; nobody else gets through this one around it. Its name is short, as
    those of sockets must be.
    """
    why = "an embedded Ray has its sockets and logs there"
    try:
        folder = tempfile.mkdtemp(prefix=f"d5ray-{os.getpid()}-", dir="/tmp")
    except OSError as error:
        raise PlacementError(
            f"Ray did not start on this machine: /tmp cannot be written ({error.strerror}), but {why}: "
            "make it writable, and free some space in it if it is full"
        ) from error
    free = shutil.disk_usage(folder).free
    if free < FOLDER_BYTES:
        Path(folder).rmdir()
        raise PlacementError(
            f"Ray did not start on this machine: {free >> 20} MiB of /tmp are free, but {why}, and needs "
            f"{FOLDER_BYTES >> 20} MiB: free some space in it"
        )
    return folder


def _describe(*, embedded: bool, seconds: float) -> Session:
    context = ray.get_runtime_context()
    url = ray_private.dashboard()
    return Session(
        address=context.gcs_address,
        dashboard=f"http://{url}" if url else None,
        embedded=embedded,
        seconds=seconds,
    )


def _grown(session: Session, cpus: int) -> Session:
    """An embedded Ray that is too small for this experiment is started anew."""
    if session.embedded and cpus > ray.cluster_resources().get("CPU", 0):
        shutdown()
        return connect("local", cpus=cpus, metadata={})
    return session


def in_thread(call: Callable[[], T]) -> Future[T]:
    """The result of a call, or what it raised, when that is known; nobody's end waits for the thread."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # it is raised where the caller waits
            result.set_exception(error)

    threading.Thread(target=run, name="d5ray-call", daemon=True).start()
    return result
