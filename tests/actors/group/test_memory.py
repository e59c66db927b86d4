"""The claim that an agent which Ray ends as memory runs short has died like any other"""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

import d5ray as d5

CHUNK_BYTES = 200 << 20
MORE_SHARE = 0.15  # of the machine's memory that may be taken beside what is


class Grow(d5.Event):
    """Takes memory before step 5 of agent 1, once, until somebody ends it; a file says that it was."""

    def __init__(self, told: Path) -> None:
        self.told = str(told)

    def before_step(self, moment: d5.events.Moment) -> None:
        told = Path(self.told)
        if moment.rank != 1 or moment.step != 5 or told.exists():
            return
        told.touch()
        taken = []
        for _ in range(int(3 * MORE_SHARE * psutil.virtual_memory().total / CHUNK_BYTES)):
            taken.append(np.ones(CHUNK_BYTES, np.uint8))
            time.sleep(0.1)
        raise MemoryError("nobody ended an agent that took too much memory")


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An embedded Ray that ends processes when so much more of the memory is taken than now."""
    memory = psutil.virtual_memory()
    if memory.available < 4 * MORE_SHARE * memory.total:
        pytest.skip("the machine has too little memory left")
    d5.shutdown()
    taken = 1.0 - memory.available / memory.total
    monkeypatch.setenv("RAY_memory_usage_threshold", f"{taken + MORE_SHARE:.3f}")
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "1000")
    yield
    d5.shutdown()


@pytest.mark.full
@pytest.mark.usefixtures("little_memory")
def test_an_agent_that_ray_ends_as_memory_runs_short_is_started_again(tmp_path: Path) -> None:
    """Its calls end with `OutOfMemoryError`, no `RayActorError`: the policy holds, and the event says why."""
    experiment = d5.Experiment(
        "mlp", "digits", d5.optimizers.Momentum(0.05, 0.9), agents=3, batch_size=16, seed=3,
        on_failure="restart", evaluate=False, cpus_per_agent=0.25, events=(Grow(tmp_path / "told"),),
    )  # fmt: skip
    with d5.launch(experiment, quiet=True) as group:
        assert group.train(20, progress=False).completed
    rows = d5.Run(group.folder).tables()["events"].to_pylist()
    died = [row for row in rows if row["name"] == "agent_died"]
    assert 1 in {row["rank"] for row in died}
    assert any("running low on memory" in row["detail"] for row in died)
