"""What all tests share: a home of their own, and one Ray head that is started when a test asks for it."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_timeout
from hypothesis import HealthCheck, settings

from tests import beside_kits
from tests.cases import share_out
from tests.patience import patience

REPOSITORY = Path(__file__).parent.parent
# Tests run several parts of a network in one process: each waits for the others within an operator.
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "4")
# How long an example takes is the machine's affair.
settings.register_profile("d5ray", deadline=None, database=None, suppress_health_check=list(HealthCheck))
settings.load_profile("d5ray")


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Any:
    """The bound of a test grows with what its waits may take."""
    longer = settings._replace(timeout=patience(settings.timeout))
    return pytest_timeout.pytest_timeout_set_timer(item, longer)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every-case", action="store_true", help="leave no case of a test with many to `full`")


@pytest.hookimpl(tryfirst=True)  # before pytest looks at marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("every_case"):
        share_out(items)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(beside_kits)  # for the product's files, too, which no conftest is above


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """D5RAY_HOME of the whole session; no test touches the user's own.

    Where the tests were started in the background, Ctrl-C is ignored by them and by all they start: it is
    given back, since some send it.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("D5RAY_HOME", str(folder))
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", str(REPOSITORY))
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))  # made by importing DDP
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.delenv("D5RAY_DATA", raising=False)
        yield folder


@dataclass(frozen=True)
class Head:
    """A Ray head that was started apart, as an administrator does it."""

    address: str  # of the cluster
    dashboard: str  # http://…
    folder: Path  # of its temporary files


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def head() -> Iterator[Head]:
    """A Ray head that tests share."""
    with started_head() as started:
        yield started


@contextlib.contextmanager
def started_head(*options: str, env: dict[str, str] | None = None, token: str = "") -> Iterator[Head]:
    """`ray start --head --block` with its dashboard on free ports; ended by its process id.

    env: variables of its own; token: what it asks everybody for.
    """
    own = (env or {}) | ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token} if token else {})
    port, dashboard = free_port(), free_port()
    folder = tempfile.mkdtemp(prefix="d5t-", dir="/tmp")
    command = [
        str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", f"--port={port}",
        f"--dashboard-port={dashboard}", "--dashboard-agent-listen-port=0",
        f"--ray-client-server-port={free_port()}",
        "--num-cpus=2", "--object-store-memory=200000000", "--disable-usage-stats", f"--temp-dir={folder}",
        '--system-config={"metrics_report_interval_ms": 1000}',  # which drivers hear of
        *options,
    ]  # fmt: skip
    log = Path(folder) / "head.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            start_new_session=True,
            # its dashboard leaves folders there; its agent knows no other settings than the environment's
            env=os.environ | {"TMPDIR": folder, "RAY_metrics_report_interval_ms": "1000"} | own,
        )
    try:
        url = f"http://127.0.0.1:{dashboard}"
        wait_until(
            lambda: _answers(f"{url}/api/version", token) and process.poll() is None, 60, log.read_text
        )
        wait_until(lambda: bool(_nodes(url, token)), 60, log.read_text)
        yield Head(address=f"{_nodes(url, token)[0]}:{port}", dashboard=url, folder=Path(folder))
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=patience(20))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def wait_until(condition: Callable[[], bool], seconds: float, report: Callable[[], str] = str) -> None:
    """Return when the condition holds; fail with the report when it does not within the time.

    The time-out is given for an idle machine, as all time-outs of tests.
    """
    begin = time.monotonic()
    while not condition():
        if (waited := time.monotonic() - begin) > patience(seconds):
            pytest.fail(f"not within {waited:.1f} s, for {seconds:g} s of an idle machine: {report()}")
        time.sleep(0.05)


def _asked(url: str, token: str) -> urllib.request.Request:
    return urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})


def _nodes(url: str, token: str) -> list[str]:
    """The addresses of the cluster's nodes, as its dashboard knows them."""
    with urllib.request.urlopen(_asked(f"{url}/nodes?view=summary", token), timeout=10) as answer:
        summary = json.loads(answer.read())["data"]["summary"]
    return [node["ip"] for node in summary if "ip" in node]  # a node is listed before its address is known


def _answers(url: str, token: str) -> bool:
    try:
        with urllib.request.urlopen(_asked(url, token), timeout=2) as answer:
            return int(answer.status) == 200
    except OSError:
        return False


@dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    code: int
    out: str
    err: str
    marker: str = ""
    pid: int = 0

    @property
    def json(self) -> dict[str, Any]:
        """Standard output, which must be nothing but JSON."""
        data = json.loads(self.out)
        assert isinstance(data, dict)
        return data

    def left(self) -> list[object]:
        """Processes that the command started and that still run, and folders that it left."""
        return [*marked(self.marker).items(), *temporary_folders(self.pid)]


def ran(
    *command: object, env: dict[str, str] | None = None, cwd: Path | None = None, seconds: float = 60,
    given: str | None = None, fails: bool = False,
) -> Finished:  # fmt: skip
    """Run a program to its end; it must end well, unless it may fail. given: what it reads."""
    done = subprocess.run(
        list(map(str, command)), env=os.environ | (env or {}), cwd=cwd, input=given, check=False,
        capture_output=True, text=True, timeout=patience(seconds),
    )  # fmt: skip
    assert fails or done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return Finished(done.returncode, done.stdout, done.stderr)


def python(*arguments: object, **options: Any) -> Finished:
    """Run a program of Python to its end, see `ran`."""
    return ran(sys.executable, *arguments, **options)


def d5ray(
    *arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None, seconds: float = 120
) -> Finished:
    """Run the command line as a user does, in a process of its own."""
    with started(*arguments, env=env, cwd=cwd) as command:
        out, err = command.process.communicate(timeout=patience(seconds))
    return Finished(command.process.returncode, out, err, command.marker, command.process.pid)


@dataclass(frozen=True)
class Started:
    """A command that runs."""

    process: "subprocess.Popen[str]"
    marker: str

    def left(self) -> list[object]:
        """Processes that the command started and that still run, and folders that it left."""
        return [*marked(self.marker).items(), *temporary_folders(self.process.pid)]


@contextlib.contextmanager
def started(*arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> Iterator[Started]:
    """The command line in a process and session of its own; ended with the block, whatever happens."""
    marker = f"D5RAY_TEST={uuid.uuid4().hex}"
    name, _, value = marker.partition("=")
    process = subprocess.Popen(
        [sys.executable, "-m", "d5ray", *arguments],
        env=os.environ | {name: value} | (env or {}),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield Started(process, marker)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def marked(marker: str) -> dict[int, str]:
    """Processes with this variable in their environment, those that ended apart: id and command line."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if marker.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found[int(folder.name)] = command
    return found


def temporary_folders(pid: int) -> list[Path]:
    """What a driver's embedded Ray left in the folder for temporary files."""
    return list(Path("/tmp").glob(f"d5ray-{pid}-*"))


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A D5RAY_HOME with nothing in it."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("D5RAY_HOME", str(home))
    return home


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test loads from its own folder, and where it looked for it, are gone after it."""
    paths = list(sys.path)
    monkeypatch.setenv("PYTHONPATH", os.environ["PYTHONPATH"])
    yield
    for name, module in list(sys.modules.items()):
        if str(tmp_path) in str(getattr(module, "__file__", "")):
            del sys.modules[name]
    sys.path[:] = paths
