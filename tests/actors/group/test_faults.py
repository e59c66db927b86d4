"""Claims about real runs under faults by plan: they do what the simulation does, and leave no one stopped"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.actors.group import roster
from d5ray.actors.group.ending import LastAnswers
from d5ray.actors.group.faults import Injector
from d5ray.actors.group.fills import check_disk, check_shared_memory
from d5ray.distributed.faults.fault import Fault
from d5ray.errors import ConfigurationError
from tests.actors.group.test_replacing import Pace
from tests.conftest import wait_until
from tests.disks import mounted, unshared
from tests.patience import patience


def experiment(on_failure: str, **changes: Any) -> d5.Experiment:
    values: dict[str, Any] = {
        "model": "mlp", "dataset": "digits", "optimizer": d5.optimizers.Momentum(0.05, 0.9), "agents": 3,
        "batch_size": 16, "seed": 3, "on_failure": on_failure, "evaluate": False, "cpus_per_agent": 0.25,
        "communicator": "shared_memory", "timeout_seconds": 40.0,
    }  # fmt: skip
    return d5.Experiment.from_values(**(values | changes))


@pytest.mark.full
@pytest.mark.parametrize(
    ("on_failure", "changes"),
    [
        ("continue", {"keep_batch": "global"}),
        ("restart", {"distributed": d5.optimizers.LocalSGD(5)}),
        ("continue", {"distributed": d5.optimizers.DiLoCo(2), "orphans": "taken_over", "scale_rate": "sqrt"}),
    ],
)
def test_a_real_run_under_a_plan_has_the_parameters_of_the_simulated_one(
    on_failure: str, changes: dict[str, Any]
) -> None:
    """Killed just before step 3: both go on from there, or from where all had met, with the same bits.

    Both say the same, also about how large a step is, and do two epochs, in as many steps as that takes.
    """
    plan = d5.Faults().kill(agent=1, at_step=3).stop(agent=2, at_step=5, seconds=0.5)
    found, told = [], []
    for run in (d5.launch, d5.simulate):
        wanted = experiment(on_failure, epochs=2, min_agents=2, max_failures=1, **changes)
        with run(wanted, faults=plan) as group:
            assert group.train(progress=False).completed
            left = [0, 2] if on_failure == "continue" else [0, 1, 2]
            found.append(
                {rank: np.concatenate([a.ravel() for a in group.parameters(rank).values()]) for rank in left}
            )
        rows = d5.Run(group.folder).tables()["events"].to_pylist()
        names = ("fault", "agent_died", "agent_restarted", "group_formed_again")
        told.append(sorted((row["name"], row["rank"], row["step"]) for row in rows if row["name"] in names))
        told[-1] += [(row["name"], row["detail"], None) for row in rows if row["name"] == "agents_changed"]
        told[-1].append(("steps", d5.Run(group.folder).row["steps"], None))
    real, simulated = found
    assert all(np.array_equal(real[rank], simulated[rank]) for rank in real)
    assert told[0] == told[1]


@pytest.mark.full
def test_an_agent_dies_in_a_collective_and_another_in_the_recovery() -> None:
    """Both are started again, and all have one model at the end, as an event says."""
    plan = d5.Faults().kill(agent=1, during="collective", at_step=2).kill(agent=2, during="recovery")
    with d5.launch(experiment("restart"), faults=plan, quiet=True) as group:
        assert group.train(40, progress=False).completed
    rows = d5.Run(group.folder).tables()["events"].to_pylist()
    assert sorted(row["rank"] for row in rows if row["name"] == "agent_died") == [1, 2]
    (hashes,) = [json.loads(row["detail"])["sha256"] for row in rows if row["name"] == "parameters"]
    assert sorted(hashes) == ["0", "1", "2"] and len(set(hashes.values())) == 1


@pytest.mark.full
def test_an_agent_dies_while_another_one_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is started again, though the one that stands does not answer; that one hears of it as it goes on."""
    monkeypatch.setattr(roster, "TELL_SECONDS", 0.5)
    plan = d5.Faults().stop(agent=2, at_step=10, seconds=6.0).kill(agent=1, at_step=20)
    with d5.launch(
        experiment("restart", distributed=d5.optimizers.ADPSGD()), faults=plan, quiet=True
    ) as group:
        assert group.train(40, progress=False).completed
    rows = d5.Run(group.folder).tables()["events"].to_pylist()
    assert [row["rank"] for row in rows if row["name"] == "agent_restarted"] == [1]


@pytest.mark.full
def test_sigterm_is_a_death_at_once() -> None:
    """Also where nobody looks for who is stuck, and nobody waits for the one that gets it."""
    plan = d5.Faults().terminate(agent=1, at_seconds=0.5).terminate(server=0, at_seconds=1.0)
    given = experiment(
        "restart", stuck_seconds=0.0, events=Pace(), distributed=d5.optimizers.ASGD(),
        servers=d5.Servers(shards=1), optimizer=d5.optimizers.SGD(0.05),
    )  # fmt: skip
    with d5.launch(given, faults=plan, quiet=True) as group:
        assert group.train(200, progress=False).completed
    rows = d5.Run(group.folder).tables()["events"].to_pylist()
    names = [row["name"] for row in rows if row["rank"] == 1 and row["agent"] == "driver"]
    assert names == ["fault", "agent_died", "agent_restarted"]
    told = [row["name"] for row in rows if row["name"].startswith("server_")]
    assert told == ["server_died", "server_restored"]


class Notes(list[tuple[str, int]]):
    def __call__(self, name: str, rank: int, **detail: object) -> None:
        self.append((name, rank))


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that lives until it is ended."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def state(process: "subprocess.Popen[bytes]") -> str:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def injector(plan: d5.Faults, process: "subprocess.Popen[bytes]", notes: Notes, root: Path) -> Injector:
    def find(fault: Fault) -> list[Any]:
        return [process.pid]

    return Injector(plan, root, find, notes, lambda node: None)


@pytest.mark.parametrize("seconds", [0.5, None])
def test_a_stop_ends_after_its_seconds_or_with_the_run(
    child: "subprocess.Popen[bytes]", seconds: float | None, tmp_path: Path
) -> None:
    """Stopped, then running, also where it was for ever; each fault is noted once."""
    notes = Notes()
    hand = injector(d5.Faults().stop("raylet", at_seconds=0.1, seconds=seconds), child, notes, tmp_path)
    hand.begin()
    hand.begin()
    wait_until(lambda: state(child) == "T", 10)
    if seconds is None:
        hand.close()
    wait_until(lambda: state(child) == "S", 10)
    hand.close()
    assert notes == [("fault", -1)]


DRIVER = """
import os, time
from pathlib import Path
import d5ray as d5
from d5ray.actors.group.faults import Injector
plan = d5.Faults().stop("driver", at_seconds=0.1, seconds=0.5)
notes = []
hand = Injector(plan, Path(), lambda fault: [os.getpid()], lambda *given, **detail: notes.append(given), None)
hand.begin()
end, longest = time.monotonic() + 1.5, 0.0
while (now := time.monotonic()) < end:
    time.sleep(0.01)
    longest = max(longest, time.monotonic() - now)
print(notes, longest > 0.4)
"""


def test_a_driver_that_stops_goes_on_after_its_seconds() -> None:
    """The plan is its own, and none of its threads runs while it stands."""
    child = subprocess.run(
        [sys.executable, "-c", DRIVER], capture_output=True, text=True, timeout=patience(30)
    )
    assert child.stdout.strip() == "[('fault', -1)] True", child.stderr


def test_a_moment_of_the_run_comes_before_it_goes_on(
    child: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    """A death that is noted begins a recovery: the victim is dead when `note` returns."""
    notes = Notes()
    hand = injector(d5.Faults().kill("raylet", during="recovery"), child, notes, tmp_path)
    noted = hand.noting(notes)
    noted("load", -1)
    assert child.poll() is None
    noted("agent_died", 1)
    assert child.wait(timeout=10) == -9
    assert notes == [("load", -1), ("agent_died", 1), ("fault", -1)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    with mounted(tmp_path / "disk", 8) as folder:
        yield folder


def test_a_small_disk_is_filled_to_the_last_byte_and_has_room_again(small_disk: Path) -> None:
    """Nothing is left of it."""
    plan = d5.Faults().fill_disk(at_seconds=0.0, seconds=1.0)
    check_disk(plan, small_disk / "runs")
    notes = Notes()
    hand = Injector(plan, small_disk, lambda fault: [], notes, lambda node: None)
    hand.begin()
    wait_until(lambda: shutil.disk_usage(small_disk).free == 0, 10)
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "one").write_bytes(bytes(8192))
    wait_until(lambda: shutil.disk_usage(small_disk).free > 2**22, 10)
    hand.close()
    assert notes == [("fault", -1)]
    assert [path.name for path in small_disk.iterdir()] in ([], ["one"])


def test_a_disk_that_others_need_is_never_filled(tmp_path: Path) -> None:
    """That of the folder for temporary files, here; the error says what to mount."""
    with pytest.raises(ConfigurationError, match="mount a small one"):
        check_disk(d5.Faults().fill_disk(at_seconds=0.0), tmp_path)
    check_disk(d5.Faults().kill("driver", at_seconds=0.0), tmp_path)


FULL_A_WHILE = """
import shutil, sys, time
from pathlib import Path
import numpy as np
import d5ray as d5
from d5ray.actors.group.faults import Injector
from d5ray.actors.group.fills import check_shared_memory
from tests.distributed.forming import former, on_all

try:
    check_shared_memory(d5.Faults().fill_shared_memory(at_seconds=0.0), embedded=True)
except d5.D5Error as error:
    sys.exit(str(error))

def filled(seconds):
    plan = d5.Faults().fill_shared_memory(at_seconds=0.0, seconds=seconds)
    hand = Injector(plan, Path(), lambda fault: [], lambda *given, **detail: None, lambda node: None)
    hand.begin()
    while shutil.disk_usage("/dev/shm").free:
        time.sleep(0.01)
    return hand

def work(member):
    try:
        array = member.allocate(2**17, "float64")
    except d5.D5Error as error:
        return str(error)[:66]
    array[:] = member.rank + 1
    member.allreduce(array)
    return float(array.mean())

with former() as groups:
    group, begin = groups.form("shared_memory", 2), time.monotonic()
    for seconds in (1.0, None):
        hand = filled(seconds)
        print(on_all(group, work))
        hand.close()
    print(time.monotonic() - begin > 1.0, len(list(Path("/dev/shm").iterdir())))
"""


def in_own_memory(before: str) -> "subprocess.CompletedProcess[str]":
    """The script above in a process with a /dev/shm of 8 MB, after another command there."""
    return subprocess.run(
        [*unshared(), f'mount -t tmpfs -o size=8m tmpfs /dev/shm; {before} exec "$0" -c "$1"',
         sys.executable, FULL_A_WHILE],
        capture_output=True, text=True, timeout=patience(60), check=False,
    )  # fmt: skip


@pytest.mark.full
def test_shared_memory_that_is_full_for_a_while_is_waited_for() -> None:
    """Nothing fits as a group allocates: it waits until there is room; for ever: all are told, nobody dies.

    Nothing is left of the fault.
    """
    done = in_own_memory("")
    needed = "the agents of this node share memory and need 1.0 MB in /dev/shm, "
    assert done.stdout.splitlines() == ["[3.0, 3.0]", str([needed] * 2), "True 0"], done.stderr


def test_shared_memory_that_others_see_is_never_filled() -> None:
    """That of the machine, here, and one that a process uses that has nothing to do with this one."""
    with pytest.raises(ConfigurationError, match=r"give the run one of its own, .*unshare -m"):
        check_shared_memory(d5.Faults().fill_shared_memory(at_seconds=0.0), embedded=True)
    with pytest.raises(ConfigurationError, match="leave the address out"):
        check_shared_memory(d5.Faults().fill_shared_memory(at_seconds=0.0), embedded=False)
    done = in_own_memory("(tail -s 0.2 --pid=$$ -f /dev/null >/dev/null 2>&1 &);")
    assert done.returncode == 1 and "(tail), which may need it" in done.stderr


def test_a_fault_that_finds_nobody_is_told_of_and_nothing_happens_after_that(
    child: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    """A server that is gone as the run closes; and a moment that has not come by then comes too late."""
    notes, told = Notes(), list[tuple[str, str]]()
    plan = d5.Faults().kill(server=0, during="closing").kill("raylet", during="recovery")

    def find(fault: Fault) -> list[Any]:
        return [] if fault.victim == "server" else [child.pid]

    hand = Injector(plan, tmp_path, find, notes, lambda node: None)
    hand.moment("closing")
    hand.settle([], lambda name, rank, **detail: told.append((name, detail["reason"])))
    assert told == [
        ("fault_missed", "there was no server 0 any more"), ("fault_missed", "there was no recovery"),
    ]  # fmt: skip
    hand.moment("recovery")
    assert child.poll() is None and not notes


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "victim"), [("kill", "agent"), ("terminate", "agent"), ("terminate", "server")]
)
def test_what_ends_a_victim_that_has_told_everything_is_missed(
    kind: str, victim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes when the run has all that it asks of it: the run is complete, and says so."""
    plan = getattr(d5.Faults(), kind)(**{victim: 1}, at_seconds=3600)
    rule: dict[str, Any] = {}
    if victim == "server":
        rule = {"distributed": d5.optimizers.ParameterServerSGD(), "servers": d5.Servers(shards=2)}
    group = d5.launch(experiment("stop", agents=2, **rule), faults=plan, quiet=True)
    ask = LastAnswers.of

    def asked(*given: Any, **named: Any) -> LastAnswers:
        told = ask(*given, **named)
        assert group._injector is not None
        group._injector._happen(plan.planned[0])
        return told

    monkeypatch.setattr(LastAnswers, "of", asked)
    with group:
        group.train(2, progress=False)
    run = d5.Run(group.folder)
    events = [event for event in run.tables()["events"].to_pylist() if event["name"].startswith("fault")]
    assert [event["name"] for event in events] == ["fault", "fault_missed"]
    assert json.loads(events[1]["detail"])["reason"] == f"{victim} 1 had told everything by then"
    assert run.row["status"] == "completed"
