"""Claims about the files behind shared memory: none is left, whatever is killed; a full folder is an error"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from d5ray.distributed.communicators import backends
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.communicators.shared_memory import segments
from d5ray.distributed.communicators.shared_memory.segments import FOLDER, clean_up
from d5ray.distributed.group.group import Group
from d5ray.distributed.topologies.topology import Complete
from d5ray.errors import ConfigurationError
from tests.distributed.forming import Former, on_all
from tests.patience import patience

REPOSITORY = Path(__file__).parents[3]


def files() -> set[str]:
    """Of this test's processes and others'; a group that is being formed has one for some milliseconds."""
    return {path.name for path in FOLDER.glob("d5ray-*")}


def of_processes(*pids: int | None) -> list[str]:
    return [name for name in files() for pid in pids if name.startswith(f"d5ray-{pid}-")]


def test_members_on_several_nodes_are_refused(groups: Former) -> None:
    """With the nodes named and the way out."""
    group = Group("apart", 0, 0, 2, groups.rendezvous.address, nodes=("left", "right"))
    with pytest.raises(ConfigurationError, match=r"on the nodes left, right, .*communicator='socket'"):
        backends.join("shared_memory", group, Complete(2))


def test_nothing_lies_in_the_folder_while_a_group_works(groups: Former) -> None:
    """Its segment and its allocations are unlinked as soon as all members have mapped them."""
    group = groups.form("shared_memory", 3)

    def work(member: Communicator) -> float:
        array = member.allocate(1000, "float32")
        array[:] = 1
        member.allreduce(array)
        assert of_processes(os.getpid()) == []
        return float(array[0])

    assert on_all(group, work) == [3.0] * 3


# -- after a death ----------------------------------------------------------------------------------------

LEAVER = """
import os, signal, sys
from contextlib import ExitStack
from d5ray.distributed.communicators.shared_memory import segments
with ExitStack() as stack:
    print(segments._offer(stack, 8192).decode(), flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_process_left_is_removed() -> None:
    """A file of a process that died before it could unlink it goes; that of a living one stays."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", LEAVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )
        for _ in range(2)
    ]
    try:
        paths = []
        for process in processes:
            assert process.stdout is not None
            paths.append(Path(process.stdout.readline().strip()))
        dead, living = paths
        assert dead.stat().st_mode & 0o777 == 0o600
        processes[0].kill()
        processes[0].wait()
        assert dead.exists() and living.exists()
        clean_up()
        assert not dead.exists() and living.exists()
        processes[1].communicate("", timeout=patience(20))
        assert not living.exists()
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_a_file_of_another_process_with_the_same_number_is_removed() -> None:
    """Process numbers come again: the start time tells a file of this process from one of its predecessor."""
    ours = FOLDER / f"d5ray-{os.getpid()}-1-{16 * '0'}"
    ours.touch(0o600)
    try:
        clean_up()
        assert not ours.exists()
    finally:
        ours.unlink(missing_ok=True)


SIZE = 8192
OTHER_USER = 65534


def name_of(number: int = 0) -> Path:
    """A path in the form that members make, of a process that is gone."""
    return FOLDER / f"d5ray-{2**22 + number}-1-{number:016x}"


@contextmanager
def strange(kind: str, folder: Path) -> Iterator[tuple[Path, Path | None]]:
    """A path that no member made, and the file behind it whose bytes must stay as they are."""
    own = name_of()
    path = {
        "elsewhere": folder / own.name, "another name": FOLDER / "d5ray-of-somebody",
        "up and down": FOLDER / ".." / "shm" / own.name,
    }.get(kind, own)  # fmt: skip
    files = {"up and down": own, "a link": folder / "precious", "a folder": None, "a pipe": None}
    behind = files.get(kind, path)
    if behind is not None:
        behind.write_bytes(b"\1" * (SIZE - (kind == "shorter")))
        behind.chmod(0o666 if kind == "open to all" else 0o600)
    if kind == "a folder":
        path.mkdir(0o700)
    elif kind == "a pipe":
        os.mkfifo(path, 0o600)
    elif kind == "a link":
        path.symlink_to(folder / "precious")
    elif kind == "of another user":
        os.chown(path, OTHER_USER, OTHER_USER)
    try:
        yield path, behind
    finally:
        path.rmdir() if kind == "a folder" else path.unlink(missing_ok=True)
        if behind is not None:
            behind.unlink(missing_ok=True)


STRANGE = [
    "elsewhere", "another name", "up and down", "a link", "a folder", "a pipe", "shorter", "open to all",
    "of another user",
]  # fmt: skip


@pytest.mark.parametrize("kind", STRANGE)
def test_only_files_in_the_form_of_members_are_mapped(kind: str, tmp_path: Path) -> None:
    """Whatever path a member names: what is no file of this user and this size is refused, and unchanged.

    Nor does cleaning up take it away, though its name says that a dead process made it.
    """
    if kind == "of another user" and os.geteuid() != 0:
        pytest.skip("only root can make a file of another user")
    with strange(kind, tmp_path) as (path, behind):
        before = behind and behind.read_bytes()
        with pytest.raises((ConfigurationError, OSError)):
            segments.Segment(path, SIZE)
        if kind not in ("shorter", "up and down"):
            clean_up()
        assert os.path.lexists(path) and (behind and behind.read_bytes()) == before
    own = name_of(1)
    own.touch(0o600)
    try:
        os.truncate(own, SIZE)
        segment = segments.Segment(own, SIZE)
        segment.reserve(0, 10 * SIZE)
        assert own.stat().st_size == SIZE  # not enlarged
    finally:
        own.unlink()


# -- a full folder ----------------------------------------------------------------------------------------


def test_more_than_there_is_is_refused_on_all(groups: Former) -> None:
    """What is needed, what is free, what to do; nothing is kept, and the group works on."""
    group = groups.form("shared_memory", 2)
    state = os.statvfs(FOLDER)
    whole = state.f_blocks * state.f_frsize

    def work(member: Communicator) -> tuple[str, float]:
        with pytest.raises(ConfigurationError) as caught:
            member.allocate(whole + 2**20, "uint8")
        array = np.ones(4)
        member.allreduce(array)
        return str(caught.value), float(array[0])

    for text, total in on_all(group, work):
        assert f"need {(whole + 2**20 + 4095) // 4096 * 4096 / 1e6:,.1f} MB in {FOLDER}" in text
        assert "MB are free: enlarge it (docker run --shm-size" in text and "communicator='socket'" in text
        assert total == 2.0
    assert of_processes(os.getpid()) == []
    now = os.statvfs(FOLDER)
    assert state.f_bfree - now.f_bfree < 2**26 // state.f_frsize


SMALL_FOLDER = """
import numpy as np
from d5ray.distributed.communicators.shared_memory import segments
from d5ray.errors import ConfigurationError
from tests.distributed.forming import former, on_all

def work(member):
    array = np.ones(1000)
    member.allreduce(array)
    try:
        other = 1 - member.rank
        member.exchange_messages({other: np.zeros(10**6, np.uint8)}, [other], length=10**6)
        return "no error"
    except ConfigurationError as error:
        return f"{array[0]}: {error}"

segments.ROOM_SECONDS = 0.2
with former() as groups:
    print(*on_all(groups.form("shared_memory", 2), work), sep="\\n")
"""


def test_memory_that_is_refused_later_fails_the_group_and_kills_nobody() -> None:
    """In a folder of 0.5 MB a channel finds no room when it is first used: both raise, instead of SIGBUS."""
    mount = f"mount -t tmpfs -o size=512k tmpfs {FOLDER}"
    unshared = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec"]
    if subprocess.run([*unshared, mount], capture_output=True, check=False).returncode:
        pytest.skip("this machine gives a test no folder of its own")
    done = subprocess.run(
        [*unshared, f'{mount}; exec "$0" -c "$1"', sys.executable, SMALL_FOLDER],
        capture_output=True, text=True, cwd=REPOSITORY, timeout=patience(60), check=False,
    )  # fmt: skip
    texts = done.stdout.splitlines()
    assert len(texts) == 2, done.stderr
    for text in texts:
        assert text.startswith("2.0: the agents of this node share memory and need 0.3 MB in /dev/shm, 0.")
