"""Claims about runs whose agents are replaced while the others train on: what happened, and the numbers"""

import os
import signal
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.actors.group.group import TrainingGroup
from d5ray.errors import AgentError, ConfigurationError
from tests.actors.looks import noted
from tests.checked import assert_agreed
from tests.distributed.checkpoints.test_changing_sizes import BATCH, PLANNED, Reference, experiment
from tests.distributed.mortal import Weighted, weighted
from tests.patience import patience

SAMPLES = 1438
pytestmark = pytest.mark.full


class Pace(d5.Event):
    """Steps of 20 ms, so that a process starts within some hundred."""

    def before_step(self, moment: Any) -> None:
        time.sleep(0.02)


def launched(**values: Any) -> TrainingGroup:
    given = {"events": (Pace(),), "cpus_per_agent": 0.25, "epochs": 400, "warmup_steps": 0}
    return d5.launch(experiment(**(given | values)), quiet=True)


def train_until(group: TrainingGroup, name: str, count: int, seconds: float = 120.0) -> None:
    """Train, some steps at a time, until the driver has noted that event so often."""
    end = time.monotonic() + patience(seconds)
    while len(noted(group, name)) < count:
        assert time.monotonic() < end, noted(group)
        assert group.train(60, progress=False).completed


def kill(group: TrainingGroup, rank: int) -> int:
    """SIGKILL; when, in ns."""
    os.kill(group.places[rank].pid, signal.SIGKILL)
    return time.time_ns()


def agree_with_numpy(group: TrainingGroup, steps: int) -> Reference:
    """All agents have the bits of the first, and the numbers of a computation of the sizes in the events."""
    wanted = group.experiment
    reference = Reference(wanted, np.random.default_rng(wanted.seed).uniform(0.5, 1.0, 500))
    rng = np.random.default_rng(wanted.seed)
    rng.uniform(0.5, 1.0, 500)
    reference.x = rng.standard_normal(500)
    agents, done = PLANNED, 0
    for row in noted(group, "agents_changed"):
        reference.go_on(agents, row["step"] - done)
        agents, done = row["agents"], row["step"]
    reference.go_on(agents, steps - done)
    found = [group.parameters(rank) for rank in group._members.present]
    first = np.concatenate([array.ravel() for array in found[0].values()])
    for each in found:
        assert np.concatenate([array.ravel() for array in each.values()]).tobytes() == first.tobytes()
    np.testing.assert_allclose(first, reference.x, rtol=1e-10, atol=1e-12)
    return reference


def samples_by_epoch(group: TrainingGroup) -> list[float]:
    """Of the complete epochs that began after agents became fewer for the last time, from all rows.

    What a killed agent did in its last second is in no row of the epochs before.
    """
    rows = group.metrics().to_pylist()
    sizes = [(PLANNED, 0)] + [(row["agents"], row["step"]) for row in noted(group, "agents_changed")]
    fewer = max(step for (before, _), (now, step) in pairwise(sizes) if now < before)
    first = min(row["epoch"] for row in rows if row["metric"] == "samples" and row["step"] >= fewer)
    last = max(row["epoch"] for row in rows if row["metric"] == "samples")
    found = dict.fromkeys(range(first + 1, last), 0.0)
    for row in rows:
        if row["metric"] == "samples" and row["epoch"] in found:
            found[row["epoch"]] += row["value"] or 0.0  # of a replica one agent counts them
    return list(found.values())


def test_survivors_train_on_and_take_the_newcomer_in() -> None:
    """One of three is killed: two make steps before another is there, and it comes with their live state.

    Momentum and schedule go on, every sample comes once an epoch, all have the same bits at the end.
    """
    with launched(communicator="socket", scale_rate="linear") as group:
        group.train(20, progress=False)
        killed: list[int] = []
        threading.Timer(0.3, lambda: killed.append(kill(group, 1))).start()
        train_until(group, "agent_joined", 1)
        steps = group.train(30, progress=False).step
        agree_with_numpy(group, steps)
        (joined,) = noted(group, "agent_joined")
        formed, _ = noted(group, "agents_changed")
        assert formed["agents"] == 2 and formed["global_batch"] == 2 * BATCH
        assert formed["rate_factor"] == pytest.approx(2 / 3)
        assert joined["rank"] == 1 and joined["step"] > formed["step"] + 10
        assert set(joined["seconds"]) == {
            "start of the actor", "import", "model and data", "place", "taking in",
        }  # fmt: skip
        counted = samples_by_epoch(group)
        assert set(counted) == {SAMPLES} and len(counted) > 2
        sizes = [row["value"] for row in group.metrics().to_pylist() if row["metric"] == "agents"]
        assert sizes == [2, 3]
        seconds = (formed["t_wall"].value - killed[0]) * 1e-9
        assert 0 < seconds < patience(30), joined["seconds"]
    assert_agreed(d5.Run(group.folder))
    assert d5.Run(group.folder).row["status"] == "completed"


def test_too_few_survivors_wait_for_newcomers_or_end_the_run() -> None:
    """With 'replace' those that are left wait; with 'continue' the run says how many are left, and fails."""
    with launched(min_agents=3) as group:
        threading.Timer(0.5, kill, (group, 1)).start()
        train_until(group, "agent_joined", 1)
        (waiting,) = noted(group, "waiting")
        assert (waiting["agents"], waiting["min_agents"]) == (2, 3)
        assert [row["agents"] for row in noted(group, "agents_changed")] == [3]
        agree_with_numpy(group, group.outcome.step)
    group = launched(min_agents=3, on_failure="continue", distributed=d5.optimizers.ADPSGD())
    with pytest.raises(AgentError, match="2 of 3 agents are left, and min_agents is 3"), group:
        threading.Timer(0.5, kill, (group, 1)).start()
        group.train(1000, progress=False)
    row = d5.Run(group.folder).row
    assert row["status"] == "failed" and "min_agents" in row["stop_reason"]


def dying(model: object, model_kwargs: dict[str, Any], **given: Any) -> Weighted:
    """The executor of an agent; the first newcomer gets SIGKILL instead."""
    folder = Path(model_kwargs["folder"])
    (folder / str(os.getpid())).touch()
    if len(list(folder.iterdir())) == PLANNED + 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return weighted(model, model_kwargs, **given)


def test_two_are_replaced_of_whom_one_dies_as_it_starts(tmp_path: Path) -> None:
    """Two die one after the other, a newcomer too: the last one trains on alone, and all are there again."""
    kwargs = {"elements": 500, "folder": str(tmp_path)}
    with launched(executor=dying, model_kwargs=kwargs, keep_batch="global") as group:
        group.train(20, progress=False)
        threading.Timer(0.2, kill, (group, 0)).start()
        threading.Timer(0.7, kill, (group, 2)).start()
        train_until(group, "agent_joined", 2)
        steps = group.train(30, progress=False).step
        agree_with_numpy(group, steps)
        died = [row["rank"] for row in noted(group, "agent_died")]
        assert len(died) == 3 and set(died) == {0, 2}
        assert group._members.present == [0, 1, 2]
        assert {row["global_batch"] for row in noted(group, "agents_changed")} == {3 * BATCH}
        assert set(samples_by_epoch(group)) == {SAMPLES}
    assert_agreed(d5.Run(group.folder))


def test_a_survivor_that_dies_as_a_newcomer_is_taken_in_is_replaced_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The state of the other survivor counts, and no step of it is lost or done twice."""
    with launched() as group:
        form_again = group._members.form_again
        killed: list[int] = []

        def struck(sharing: Any) -> Any:
            if len(group._members.present) == PLANNED and not killed:
                killed.append(kill(group, 0))
            return form_again(sharing)

        monkeypatch.setattr(group._members, "form_again", struck)
        group.train(20, progress=False)
        threading.Timer(0.3, kill, (group, 1)).start()
        train_until(group, "agent_joined", 2)
        agree_with_numpy(group, group.train(30, progress=False).step)
        assert [row["rank"] for row in noted(group, "agent_died")] == [1, 0]
        assert [row["rank"] for row in noted(group, "agent_joined")] == [1, 0]
        assert [row["agents"] for row in noted(group, "agents_changed")] == [2, 2, 3]
        assert set(samples_by_epoch(group)) == {SAMPLES}
    assert_agreed(d5.Run(group.folder))


def test_a_run_is_resized_on_purpose() -> None:
    """To one agent, by the group; to three, by the run's name: nobody dies, epochs end with their samples."""
    with launched(on_failure="stop", scale_rate="sqrt") as group:
        threading.Timer(0.3, d5.resize, (group,), {"agents": 1}).start()
        train_until(group, "agents_changed", 1)
        assert [row["rank"] for row in noted(group, "agent_left")] == [2, 1]
        assert group._members.present == [0]
        d5.resize(group.run_id, agents=3)
        train_until(group, "agent_joined", 2)
        place = group._epochs.at(group.outcome.step)
        ended = group.train(epochs=1, progress=False).step
        assert group._epochs.at(ended).epoch == place.epoch + 1
        agree_with_numpy(group, ended)
        assert not noted(group, "agent_died")
        factors = [row["rate_factor"] for row in noted(group, "agents_changed")]
        assert factors[0] == pytest.approx(3**-0.5) and factors[-1] == 1.0  # they come together or in turn
        assert set(samples_by_epoch(group)) == {SAMPLES}
        for run in (group, group.run_id):
            with pytest.raises(ConfigurationError, match=r"agents is 4: it must be .* 3 at most"):
                d5.resize(run, agents=4)
    with pytest.raises(ConfigurationError, match=r"No run '.*' is going on"):
        d5.resize(group.run_id, agents=2)
