"""Ray itself fails: one sentence as soon as it is known, exit code 3, and what was measured is kept."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from d5ray.actors.vital import Children, Elsewhere
from d5ray.errors import RayLost
from tests.commands.test_interrupts import LONG, train_for_a_while
from tests.conftest import started


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


def test_a_head_elsewhere_may_come_back_for_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A head that answers is well; one that does not is given up after `HEAD_SECONDS`, and not before."""
    monkeypatch.setattr("d5ray.actors.vital.KNOCK_SECONDS", 0.01)
    monkeypatch.setattr("d5ray.actors.vital.HEAD_SECONDS", 0.5)
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


@pytest.mark.parametrize("kind", ["gcs_server", pytest.param("raylet", marks=pytest.mark.slow)])
def test_a_ray_that_ends_in_the_midst_of_a_run_ends_it_at_once(kind: str, tmp_path: Path) -> None:
    """SIGKILL of the head or the raylet: seconds later one line, exit code 3, a run that reads as failed."""
    with started(*LONG, env={"D5RAY_HOME": str(tmp_path)}) as command:
        run = train_for_a_while(command, tmp_path)
        before = run.tables()["samples"].num_rows
        children = psutil.Process(command.process.pid).children(recursive=True)
        (victim,) = [each for each in children if each.name() == kind]
        begin = time.monotonic()
        os.kill(victim.pid, signal.SIGKILL)
        _, err = command.process.communicate(timeout=60)
        assert time.monotonic() - begin < 20, err
        assert command.process.returncode == 3, err
        told = [line for line in err.splitlines() if line.startswith("error: ")]
        assert len(told) == 1 and "has ended by signal 9" in told[0], err
        assert "Traceback" not in err
        assert not command.left()
    assert run.row["status"] == "failed"
    assert run.tables()["samples"].num_rows >= before > 0
