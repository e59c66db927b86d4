"""Claims about starting Ray: Ctrl-C is heard at once, and what was interrupted comes to its end behind it."""

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

from d5ray.actors.session.starter import Starter
from d5ray.errors import PlacementError
from tests.conftest import marked, temporary_folders, wait_until
from tests.patience import patience


def test_it_returns_when_the_start_is_over_and_its_thread_lives_until_the_release() -> None:
    """The thread that started Ray's processes is the one whose end ends them."""
    threads = []
    starter = Starter(lambda: threads.append(threading.current_thread()), lambda: threads.clear())
    starter.run()
    (thread,) = threads
    time.sleep(0.1)
    assert thread.is_alive() and thread is not threading.current_thread()
    starter.release()
    thread.join(5)
    assert not thread.is_alive() and threads == [thread]  # its end was not called: nobody interrupted it
    starter.settle()


def test_what_the_start_raises_is_raised() -> None:
    """In the caller's thread, and the other one ends."""
    threads = []

    def fail() -> None:
        threads.append(threading.current_thread())
        raise ConnectionError("nobody answers")

    with pytest.raises(ConnectionError, match="nobody answers"):
        Starter(fail, list).run()
    threads[0].join(5)
    assert not threads[0].is_alive()


def test_a_start_that_takes_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the bound an error that says so; the start's own end is called when it comes to it after all."""
    monkeypatch.setattr("d5ray.actors.session.starter.START_SECONDS", 0.1)
    answered, ended = threading.Event(), threading.Event()
    starter = Starter(answered.wait, ended.set)
    with pytest.raises(PlacementError, match=r"did not start within 0\.1 s"):
        starter.run()
    assert starter.under_way and not ended.is_set()
    answered.set()
    starter.settle()
    assert ended.is_set() and not starter.under_way


def test_ctrl_c_is_heard_while_the_start_blocks() -> None:
    """At once; the start comes to its end behind it, and only then what it started is ended."""
    order, go_on = [], threading.Event()

    def block() -> None:
        assert go_on.wait(patience(20))
        order.append("started")

    starter = Starter(block, lambda: order.append("ended"))
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        starter.run()
    assert time.monotonic() - begin < patience(2)
    assert order == []
    waiting = [starter.under_way]
    threading.Timer(0.2, go_on.set).start()
    starter.settle()
    assert [*waiting, starter.under_way] == [True, False]
    assert order == ["started", "ended"]


AGAIN = """
import os, signal, threading
import d5ray as d5
experiment = d5.Experiment(
    model="lenet", dataset="digits", optimizer=d5.optimizers.SGD(0.1), agents=2, evaluate=False
)
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(1.8, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        with d5.launch(experiment, quiet=True) as group:
            print("too late")
    except KeyboardInterrupt:
        print("interrupted")
    with d5.launch(experiment, quiet=True) as group:
        print(group.train(steps=2, progress=False).completed)
"""


@pytest.mark.full
def test_a_program_that_was_interrupted_while_ray_starts_can_launch_again(tmp_path: Path) -> None:
    """In the same process; when it has ended nothing is left, of the first Ray neither."""
    file = tmp_path / "again.py"
    file.write_text(AGAIN)
    name, value = "D5RAY_TEST", uuid.uuid4().hex
    process = subprocess.Popen(
        [sys.executable, str(file)],
        env=os.environ | {name: value, "D5RAY_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    out, _ = process.communicate(timeout=patience(100))
    assert out.splitlines() == ["interrupted", "True"]
    assert process.returncode == 0
    wait_until(lambda: not marked(f"{name}={value}"), 10, lambda: str(marked(f"{name}={value}")))
    assert temporary_folders(process.pid) == []


WITHIN = """
import os, sys
from pathlib import Path
from d5ray.actors.session import session
session.connect(None, cpus=1, metadata={}, quiet=True)
[folder] = Path("/tmp").glob(f"d5ray-{os.getpid()}-*")
print(oct(folder.stat().st_mode & 0o777), len(list(folder.rglob("*.log"))) > 3, flush=True)
if os.fork() == 0:
    os.setuid(65534)
    try:
        os.listdir(folder / "r")
        print("read", flush=True)
    except PermissionError:
        print("refused", flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="another user's process is started by root")
def test_no_other_user_gets_into_the_folder_of_an_embedded_ray(tmp_path: Path) -> None:
    """Its logs, sockets and temporary files, though Ray opens its own folder to everyone."""
    done = subprocess.run(
        [sys.executable, "-c", WITHIN],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[3],
    )
    assert done.stdout.splitlines() == ["0o700 True", "refused"], done.stderr
