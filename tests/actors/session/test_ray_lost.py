"""Ray itself fails: one sentence as soon as it is known, exit code 3, and what was measured is kept."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from d5ray.actors.session.ray_processes import Children, Elsewhere, Head
from d5ray.errors import RayLost
from d5ray.metrics.record.reader import Run
from tests.commands.test_interrupts import LONG, train_for_a_while
from tests.conftest import REPOSITORY, d5ray, started
from tests.patience import patience


def only_error(err: str) -> str:
    """The one line of standard error beside the one that names the run, where it has begun."""
    (line,) = [line for line in err.splitlines() if " agents on 1 node" not in line]
    assert line.startswith("error: "), err
    return line


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that lives until it is ended."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    )
    yield process
    process.kill()
    process.communicate()


def test_a_child_that_ends_is_told_with_its_signal(child: "subprocess.Popen[bytes]") -> None:
    """Nothing while it lives; then at the next look, and at every other one."""
    vital = Children({"raylet": child})
    vital.check()
    child.kill()
    child.wait()
    for _ in range(2):
        with pytest.raises(RayLost, match=r"raylet.* has ended by signal 9"):
            vital.check()


def test_a_child_that_has_ended_is_told_to_every_thread() -> None:
    """Also to one that looks while another does, twenty times over."""
    looks = threading.Barrier(8)

    def told(vital: Children) -> bool:
        looks.wait()
        try:
            vital.check()
        except RayLost:
            return True
        return False

    with ThreadPoolExecutor(8) as threads:
        for _ in range(20):
            child = subprocess.Popen(["true"])
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            assert all(threads.map(told, [Children({"raylet": child})] * 8))


def test_an_embedded_head_whose_port_is_closed_is_gone(
    child: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after SIGTERM: its process is there for ever, and takes no calls."""
    monkeypatch.setattr("d5ray.actors.session.ray_processes.KNOCK_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        vital = Children({"gcs_server": child}, Head(f"127.0.0.1:{server.getsockname()[1]}", 0.0))
        time.sleep(0.3)
        vital.check()
    time.sleep(0.3)
    for _ in range(2):  # the second looks before the next knock
        with pytest.raises(RayLost, match=r"the head of Ray at .* has not answered"):
            vital.check()


def test_a_head_elsewhere_may_come_back_for_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A head that answers is well; one that does not is given up after `HEAD_SECONDS`, and not before."""
    monkeypatch.setattr("d5ray.actors.session.ray_processes.KNOCK_SECONDS", 0.01)
    monkeypatch.setattr("d5ray.actors.session.ray_processes.HEAD_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        vital = Elsewhere(f"127.0.0.1:{port}", None)
        time.sleep(0.6)
        vital.check()
    time.sleep(0.05)
    vital.check()
    time.sleep(0.6)
    with pytest.raises(RayLost, match=f"head of Ray at 127.0.0.1:{port} has not answered for"):
        vital.check()


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "how", "options"),
    [("raylet", signal.SIGKILL, ("--json",)), ("gcs_server", signal.SIGTERM, ())],
)
def test_a_ray_that_ends_in_the_midst_of_a_run_ends_it_at_once(
    kind: str, how: signal.Signals, options: tuple[str, ...], tmp_path: Path
) -> None:
    """A signal to the head or the raylet: seconds later one line, exit code 3, a run that reads as failed."""
    words = "has ended by signal 9" if how == signal.SIGKILL else "has not answered for"
    segments = set(Path("/dev/shm").iterdir())
    with started(*LONG, *options, env={"D5RAY_HOME": str(tmp_path)}) as command:
        run = train_for_a_while(command, tmp_path)
        before = run.tables()["samples"].num_rows
        children = psutil.Process(command.process.pid).children(recursive=True)
        (victim,) = [each for each in children if each.name() == kind]
        new = set(Path("/dev/shm").iterdir()) - segments
        begin = time.monotonic()
        os.kill(victim.pid, how)
        out, err = command.process.communicate(timeout=patience(60))
        seconds = time.monotonic() - begin
        assert command.process.returncode == 3, err
        line = only_error(err)
        assert words in line
        assert not out  # neither a result, nor what Ray says of itself
        assert seconds < patience(10), seconds
        assert not command.left()
        own = [each for each in new if str(command.process.pid) in each.name and each.exists()]
        assert not own, own
    assert run.row["status"] == "failed"
    assert words in run.row["stop_reason"]
    assert run.tables()["samples"].num_rows >= before > 0
    assert "ray_lost" in run.tables()["events"]["name"].to_pylist()


def mounted(
    options: str, where: Path | str, *arguments: str, home: Path
) -> "subprocess.CompletedProcess[str]":
    """The command line where a folder is a file system of its own, which this command alone sees."""
    script = 'mount -t tmpfs -o "$0" tmpfs "$1" && shift && exec "$@"'
    words = ["unshare", "-rm", "sh", "-c", script, options, str(where)]
    return subprocess.run(
        [*words, sys.executable, "-m", "d5ray", *arguments],
        env=os.environ | {"D5RAY_HOME": str(home)}, capture_output=True, text=True, timeout=patience(120),
    )  # fmt: skip


def may_mount() -> bool:
    script = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return shutil.which("unshare") is not None and subprocess.run(script, capture_output=True).returncode == 0


mounting = pytest.mark.skipif(not may_mount(), reason="file systems of a process's own are not allowed here")


@pytest.mark.full
@mounting
@pytest.mark.skipif(Path("/tmp") in REPOSITORY.parents, reason="the checkout lies in /tmp, which is hidden")
@pytest.mark.parametrize(
    ("options", "words"), [("ro", "/tmp cannot be written"), ("size=1m", "of /tmp are free")]
)
def test_a_ray_without_room_for_its_files_does_not_start(options: str, words: str, tmp_path: Path) -> None:
    """A /tmp that cannot be written, or is full: one line, exit code 3, before Ray would try for minutes."""
    with tempfile.TemporaryDirectory(dir=Path.home()) as home:  # not beneath /tmp, which is another here
        done = mounted(options, "/tmp", *LONG, home=Path(home))
        assert done.returncode == 3, done
        line = only_error(done.stderr)
        assert line.startswith("error: Ray did not start on this machine") and words in line
        assert not list(Path(home).glob("runs/*"))


LEAVING = """
import os
import d5ray as d5
import d5ray.frameworks.torch as d5fw

def leave():
    {line}

class Event(d5.Event):
    def after_step(self, moment):
        if moment.step == 5:
            leave()

class Optimizer(d5.optimizers.UpdateRuleOptimizer):
    def update_rule(self, grad, old_param, param_name):
        leave()

def model():
    leave()

FIXED = {{"model": "lenet", "dataset": "digits", "epochs": 1}}
MUTABLE = {{
    "agents": 2, "batch_size": 32, "executor": d5fw.from_model, "optimizer": d5.optimizers.SGD(0.1),
    "distributed": d5.optimizers.AllreduceSGD, "seed": 1,
}}
FIXED |= {part}
MUTABLE = {{key: value for key, value in MUTABLE.items() if key not in FIXED}}
METRICS = [d5.metrics.TestAccuracy() >= 0.0]
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("part", "line", "words"),
    [
        ("{'events': [Event()]}", "os._exit(0)", "died"),
        ("{'optimizer': Optimizer(0.1)}", "raise SystemExit(0)", "called sys.exit(0)"),
        ("{'model': model}", "raise SystemExit(0)", "called sys.exit(0)"),
    ],
)
def test_code_that_ends_an_agent_reaches_no_verdict(part: str, line: str, words: str, tmp_path: Path) -> None:
    """Whatever code it asks for: no PASS, though any accuracy would do; one line, exit code 3."""
    file = tmp_path / "leaving.py"
    file.write_text(LEAVING.format(line=line, part=part))
    done = d5ray("run", str(file), env={"D5RAY_HOME": str(tmp_path / "home")})
    assert done.code == 3, done
    told = only_error(done.err)
    assert told.startswith("error: TrainingAgent(rank=") and words in told
    assert not done.out
    assert not done.left()
    folders = list((tmp_path / "home").glob("runs/*"))
    assert [Run(folder).row["status"] for folder in folders] == ([] if "model" in part else ["failed"])
