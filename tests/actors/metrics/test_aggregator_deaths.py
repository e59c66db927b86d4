"""The death of the aggregator, and a disk without room: what was recorded is stored, each row once"""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

import d5ray as d5
from d5ray.actors.metrics.aggregator import MetricsAggregator
from d5ray.actors.metrics.keeper import AggregatorKeeper
from d5ray.errors import DiskFull, RayLost
from d5ray.metrics.record.reader import Run
from d5ray.metrics.record.schema import VERDICTS
from tests.checked import assert_breaks
from tests.conftest import wait_until
from tests.disks import mounted
from tests.metrics.small_runs import written
from tests.patience import patience

RESTORED_SECONDS = 60.0  # of an idle machine, at most, in which another aggregator is there


def test_the_runs_row_counts_what_arrived_until_the_end(tmp_path: Path) -> None:
    """Of a run that is interrupted agents still send when the driver has counted: 0 rows there, 400 here."""
    written(tmp_path, "r", 1, experiment="{}").leave()
    aggregator = MetricsAggregator(str(tmp_path), "r", again=True)
    aggregator.close({"status": "interrupted", "rows": 0}, VERDICTS.empty_table())
    assert Run(tmp_path / "r").row["rows"] == Run(tmp_path / "r").tables()["samples"].num_rows == 400


class Slowly(d5.Event):
    """Lets a step take so long that something can happen meanwhile."""

    def after_step(self, moment: Any) -> None:
        time.sleep(0.01)


def experiment(**changes: Any) -> d5.Experiment:
    given: dict[str, Any] = {
        "model": "mlp", "dataset": "digits", "optimizer": d5.optimizers.SGD(0.05), "agents": 2,
        "batch_size": 16, "seed": 3, "cpus_per_agent": 0.25, "evaluate": False, "monitor_seconds": 0.2,
        "events": (Slowly(),),
    }  # fmt: skip
    return d5.Experiment.from_values(**{**given, **changes})


def aggregator_of(group: Any) -> psutil.Process:
    """The process of the aggregator that is there now."""
    return psutil.Process(ray.get(group.aggregator.actor.state.remote(), timeout=60)[0])


@contextmanager
def meanwhile(work: Callable[[], None]) -> Iterator[None]:
    """Do this in a thread; what it raises is raised at the end."""
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    yield
    thread.join(patience(120))
    assert not thread.is_alive()
    if errors:
        raise errors[0]


def replaced(group: Any, before: Any) -> None:
    """Return when another aggregator stands in the place of this actor."""
    wait_until(lambda: group.aggregator.actor is not before, RESTORED_SECONDS)


def complete(group: Any, steps: int) -> Run:
    """The closed run, of which every agent's steps are there once, and every rule of the checker holds."""
    run = Run(group.folder)
    samples = run.tables()["samples"].to_pandas()
    losses = samples[samples.metric == "loss"]
    for rank in range(2):
        own = losses[losses["rank"] == rank]
        last = own[own.attempt == own.attempt.max()]
        assert list(last.step) == list(range(int(last.step.min()), steps))
        assert own.attempt.max() or last.step.min() == 0
    assert run.row["status"] == "completed"
    assert run.row["rows"] == len(samples)
    assert_breaks(run)
    return run


def events_of(run: Run, name: str) -> list[dict[str, Any]]:
    rows = run.tables()["events"].to_pylist()
    return [row | {"detail": json.loads(row["detail"])} for row in rows if row["name"] == name]


def test_a_head_that_is_silent_while_another_aggregator_starts_ends_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who waits for another hears at once that none comes, and the run says why."""

    def start_again() -> None:
        raise RayLost("the head of Ray has not answered for 20 s")

    keeper = AggregatorKeeper(start_again, lambda *_, **__: None, print, list, 60.0, 60.0)
    monkeypatch.setattr(keeper, "_look", lambda actor, seconds: "it died")
    begin = time.monotonic()
    keeper.begin(dead := object())
    assert not keeper.another(dead)
    assert time.monotonic() - begin < patience(30)
    with pytest.raises(RayLost, match="has not answered"):
        keeper.check()
    keeper.end()


@pytest.mark.full
def test_an_aggregator_that_dies_or_is_stuck_is_restored_and_loses_nothing() -> None:
    """SIGKILL, then SIGSTOP for ever: training goes on, queries and Flight answer again at the same place."""
    steps = 800

    def strike() -> None:
        for how in (signal.SIGKILL, signal.SIGSTOP):
            time.sleep(1)
            before = group.aggregator.actor
            aggregator_of(group).send_signal(how)
            found = d5.running(group.run_id).sql("SELECT count(*) AS n FROM samples")
            assert found.to_pylist()[0]["n"] >= 0
            replaced(group, before)

    with d5.launch(experiment(stuck_seconds=2.0), flight="0", quiet=True) as group:
        assert group.flight is not None
        served = dict(group.flight)
        with meanwhile(strike):
            group.train(steps=steps, progress=False)
        far = Run(served["location"], token=served["token"])
        assert far.sql("SELECT count(DISTINCT step) AS n FROM samples").to_pylist() == [{"n": steps}]
    run = complete(group, steps)
    died = events_of(run, "aggregator_died")
    assert ["did not answer" in each["detail"]["reason"] for each in died] == [False, True]
    restored = events_of(run, "aggregator_restored")
    assert [0 < event["detail"]["seconds"] < patience(RESTORED_SECONDS) for event in restored] == [True] * 2
    phases = {
        row["phase"] for row in run.sql("SELECT DISTINCT phase FROM samples WHERE rank = -1").to_pylist()
    }
    assert "train" in phases


@pytest.mark.full
def test_an_aggregator_that_dies_while_the_run_closes_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed when the driver has made the run's last row: what tells of it is not later than the end, and the
    folder is complete, in Parquet."""
    with d5.launch(experiment(events=()), quiet=True) as group:
        group.train(steps=20, progress=False)
        close = group.aggregator.close

        def killed(row: dict[str, Any], verdicts: Any) -> None:
            aggregator_of(group).kill()
            close(row, verdicts)

        monkeypatch.setattr(group.aggregator, "close", killed)
        group.close()
    run = complete(group, 20)
    (restored,) = events_of(run, "aggregator_restored")
    assert restored["t_wall"] <= run.row["ended"]
    assert not list(group.folder.glob("*.arrows")) and not list(group.folder.glob(".*"))


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A disk of 4 MiB, on which runs are kept."""
    with mounted(tmp_path / "disk", 4) as folder:
        monkeypatch.setenv("D5RAY_HOME", str(folder))
        yield folder


def fill(disk: Path) -> Path:
    """Leave no byte on this disk."""
    ballast = disk / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return ballast


@pytest.mark.full
def test_a_disk_that_is_full_for_a_while_costs_nothing_but_two_events(disk: Path) -> None:
    """Training goes on meanwhile; when there is room again, every row is stored, once."""
    steps = 600
    with d5.launch(experiment(), quiet=True) as group:

        def fill_for_a_while() -> None:
            time.sleep(1)
            ballast = fill(disk)
            time.sleep(3)
            ballast.unlink()

        with meanwhile(fill_for_a_while):
            group.train(steps=steps, progress=False)
    run = complete(group, steps)
    (full,), (freed,) = events_of(run, "disk_full"), events_of(run, "disk_freed")
    assert f"the disk of {group.folder} is full (0 B free)" in full["detail"]["reason"]
    assert 0 < freed["detail"]["seconds"] < patience(10)
    assert full["t_wall"] < freed["t_wall"]


@pytest.mark.full
def test_a_disk_that_stays_full_ends_the_run_and_keeps_what_was_stored(disk: Path) -> None:
    """After `timeout_seconds` with the disk's name, and no sooner; what was acknowledged can be read."""
    begin = 0.0

    def fill_for_ever() -> None:
        nonlocal begin
        time.sleep(2)
        begin = time.monotonic()
        fill(disk)

    def train() -> None:
        with d5.launch(experiment(timeout_seconds=4.0), quiet=True) as group:
            folders.append(group.folder)
            with meanwhile(fill_for_ever):
                group.train(steps=100_000, progress=False)

    folders: list[Path] = []
    with pytest.raises(DiskFull, match=r"the disk of .* is full") as found:
        train()
    assert 4.0 <= time.monotonic() - begin < patience(60)
    assert "free some space there" in str(found.value)
    samples = Run(folders[0]).tables()["samples"].to_pandas()
    for _, rows in samples.groupby(["agent", "attempt"]):
        assert list(rows.seq) == list(range(len(rows)))
    assert len(samples)
