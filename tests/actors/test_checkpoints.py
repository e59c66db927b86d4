"""Claims about runs on Ray that are killed and go on from their checkpoints as if nothing had happened"""

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray

import d5ray as d5
from d5ray.distributed.checkpoints.folder import CheckpointFolder
from d5ray.errors import AgentError, StorageError
from d5ray.metrics.record.tensor_file import parsed
from tests.conftest import wait_until

DIGITS = d5.datasets.load_dataset("digits")


@pytest.fixture(scope="module", autouse=True)
def ray_ends() -> Iterator[None]:
    """One embedded Ray for the module's launches, and none afterwards."""
    yield
    d5.shutdown()


def experiment(**changes: Any) -> d5.Experiment:
    values: dict[str, Any] = {
        "model": "lenet", "dataset": DIGITS, "optimizer": d5.optimizers.Adam(0.002),
        "topology": d5.topologies.Ring(2), "seed": 5,
        "distributed": d5.optimizers.CompressedSGD(d5.compression.ErrorFeedback(d5.compression.TopK(0.1))),
        "batch_size": 32, "epochs": 4,
        "cpus_per_agent": 0.25,
    }  # fmt: skip
    return d5.Experiment(**(values | changes))


SERVED: dict[str, Any] = {"distributed": d5.optimizers.ParameterServerSGD(), "servers": d5.Servers(shards=2)}


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, SERVED], ids=["compressed", "parameter server"])
def test_a_run_whose_agent_was_killed_goes_on_bit_for_bit(changes: dict[str, Any], tmp_path: Path) -> None:
    """Killed at any instant, also while it writes: what is complete is whole, and the end is the same."""
    with d5.launch(experiment(**changes)) as group:
        group.train(progress=False)
        expected = ray.get([agent.parameters_sha256.remote() for agent in group.agents])

    folder = CheckpointFolder(str(tmp_path))
    saving = experiment(events=(d5.events.Checkpoint(tmp_path, every_steps=3, keep=0),), **changes)
    with pytest.raises(AgentError, match=r"TrainingAgent\(rank=1\) died"), d5.launch(saving) as group:
        pid = group.places[1].pid

        def kill() -> None:
            wait_until(lambda: len(folder.steps()) >= 4, 60)
            os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            group.train(progress=False)
        finally:
            killer.join()

    steps = folder.steps()
    assert len(steps) >= 4
    for step in steps:
        for rank in range(2):
            parsed(folder.read(step, f"agent-{rank}.safetensors"), "file")

    with d5.launch(replace(saving, events=()), resume=tmp_path) as group:
        outcome = group.train(progress=False)
        found = ray.get([agent.parameters_sha256.remote() for agent in group.agents])
        rows = group.tables()["events"].to_pylist()
    assert outcome.step == 4 * group.built.steps_per_epoch
    assert [row["step"] for row in rows if row["name"] == "resumed"] == [steps[-1]] * 2
    assert found == expected


@pytest.mark.slow
def test_agents_that_do_not_wait_are_told_that_one_has_ended_the_run() -> None:
    wanted = experiment(
        distributed=d5.optimizers.ADPSGD(), optimizer=d5.optimizers.Momentum(0.05, 0.9), epochs=2000,
        events=(d5.events.StopAfterSteps(30), d5.events.SaveWrongSamples()),
    )  # fmt: skip
    with d5.launch(wanted) as group:
        outcome = group.train(progress=False)
        assert (outcome.status, outcome.reason) == ("completed", "30 steps are done")
        assert group.tables()["events"].num_rows > 0
    assert (group.folder / "wrong_samples.parquet").exists()
    assert d5.Run(group.folder).row["stop_reason"] == "30 steps are done"


@pytest.mark.slow
def test_a_checkpoint_that_does_not_fit_leaves_no_run(tmp_path: Path) -> None:
    with d5.launch(experiment(events=(d5.events.Checkpoint(tmp_path / "saved", every_steps=3),))) as group:
        group.train(3, progress=False)
    file = tmp_path / "saved" / "step-00000003" / "agent-1.safetensors"
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(StorageError, match=r"agent-1\.safetensors is damaged"):
        d5.launch(experiment(), resume=tmp_path / "saved", root=tmp_path / "runs")
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.full
def test_a_relative_path_begins_where_the_program_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents work in the folder in which Ray was started: they save, and go on, in that of the program."""
    with d5.launch(experiment(), quiet=True):
        pass
    monkeypatch.chdir(tmp_path)
    saving = experiment(events=(d5.events.Checkpoint("saved", every_steps=3),))
    with d5.launch(saving, quiet=True) as group:
        group.train(3, progress=False)
    assert (tmp_path / "saved" / "step-00000003").is_dir()
    with d5.launch(experiment(), resume="saved", quiet=True) as group:
        assert group.outcome.step == 3
