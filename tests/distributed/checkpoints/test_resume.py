"""A training that goes on from a checkpoint has the numbers of one that was never stopped, bit for bit"""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
import torch
from torch import nn

import d5ray as d5
from d5ray.distributed.checkpoints.checkpoint import Checkpoints
from d5ray.errors import AgentError, ConfigurationError, StorageError
from d5ray.training.batches.batch import Batch
from d5ray.training.datasets.dataset import Dataset, Split
from tests.agents import agents_in_threads
from tests.distributed.every_optimizer import EVERY, SERVERED
from tests.together import together

MEETING = {name: entry for name, entry in EVERY.items() if not entry.rule.one_sided}
RNG = np.random.default_rng(7)
DATA = Dataset(
    "noise",
    Split(RNG.standard_normal((101, 1, 4, 4)).astype(np.float32), RNG.integers(0, 3, 101)),
    Split(RNG.standard_normal((20, 1, 4, 4)).astype(np.float32), RNG.integers(0, 3, 20)),
    ("a", "b", "c"),
)


OPTIMIZERS = d5.optimizers
BASES: list[d5.Optimizer] = [
    *(getattr(OPTIMIZERS, kind)(0.01) for kind in (
        "SGD", "Momentum", "Nesterov", "AdaGrad", "RMSProp", "Adam", "AdamW", "AMSGrad", "NAdam", "AdaMax",
        "Lion", "Adafactor", "LARS", "LAMB", "Muon", "Shampoo", "LBFGS",
    )),
    OPTIMIZERS.AcceleGrad(0.1, 5.0),
    OPTIMIZERS.ClipNorm(OPTIMIZERS.WeightDecay(OPTIMIZERS.Momentum(0.05, 0.9), 0.01), 1.0),
    OPTIMIZERS.Scheduled(OPTIMIZERS.Momentum(0.05, 0.9), learning_rate=d5.schedules.Cosine(0.1, 4)),
]  # fmt: skip


class HeavyBall(d5.optimizers.UpdateRuleOptimizer):
    """A rule of the user's own, that keeps a tensor by name."""

    def __init__(self, learning_rate: float) -> None:
        super().__init__(learning_rate)
        self.velocity: dict[str, Any] = {}

    def update_rule(self, grad: Any, old_param: Any, param_name: str) -> Any:
        self.velocity[param_name] = 0.9 * self.velocity.get(param_name, 0) + grad
        return old_param - self.learning_rate * self.velocity[param_name]


class Noisy(d5.DistributedOptimizer):
    """An optimizer of the user's own with random numbers, an object and another optimizer within."""

    one_model = False  # every agent adds numbers of its own

    def start(self) -> None:
        self.inner = d5.optimizers.CompressedSGD(d5.compression.ErrorFeedback(d5.compression.TopK(0.2)))
        self.own = np.random.default_rng(self.communication.rank)
        self.inner.bind(
            executor=self._executor, base=self.base, communication=self.communication, rng=self.rng
        )

    def step(self, batch: Batch) -> None:
        self.inner.step(batch)
        self.loss = self.inner.loss
        noise = self.shared_rng.standard_normal(len(self.x)) + self.rng.standard_normal()
        self.x += 1e-3 * torch.from_numpy(noise + self.own.standard_normal()).float()


def experiment(**changes: Any) -> d5.Experiment:
    values: dict[str, Any] = {
        "model": "mlp", "model_kwargs": {"hidden": (8,)}, "dataset": DATA,
        "optimizer": d5.optimizers.Momentum(0.05, 0.9), "agents": 4, "batch_size": 4, "epochs": 4, "seed": 3,
        "warmup_steps": 0,
    }  # fmt: skip
    return d5.Experiment.from_values(**(values | changes))


def course(group: Any) -> list[Any]:
    """Everything that a run measures but its times, and the bits of all parameters."""
    samples = group.metrics()
    kept = samples.filter(
        pc.is_in(samples["metric"], pc.cast(["loss", "test_loss", "test_accuracy"], "string"))
    )
    rows = [(r["agent"], r["metric"], r["step"], r["epoch"], r["value"]) for r in kept.to_pylist()]
    bits = [agent.flat_parameters().tobytes() for agent in group.agents]
    return [sorted(row for row in rows), bits]


def check_goes_on(wanted: d5.Experiment, tmp_path: Path, step: int, steps: int) -> None:
    """One run of `steps`, and one that is stopped after `step` and goes on elsewhere."""
    event = d5.events.Checkpoint(tmp_path / "saved", every_steps=step, keep=0)
    with d5.simulate(replace(wanted, events=(event,))) as group:
        group.train(steps, progress=False)
        whole = course(group)
    found = Checkpoints(str(tmp_path / "saved"), step)
    with d5.simulate(wanted, resume=str(found)) as group:
        group.train(steps - step, progress=False)
        rest = course(group)
    assert rest[1] == whole[1]
    assert rest[0] == [row for row in whole[0] if row[2] >= step]


@pytest.mark.parametrize("name", MEETING)
def test_every_distributed_optimizer_goes_on(name: str, tmp_path: Path) -> None:
    """Stopped in the middle of the second epoch of seven steps, in the middle of every optimizer's period."""
    entry = MEETING[name]
    wanted = experiment(distributed=entry.rule, topology=entry.topology, agents=None, optimizer=entry.base)
    check_goes_on(wanted, tmp_path, step=11, steps=20)


SERVER = OPTIMIZERS.ParameterServerSGD
SERVED: dict[str, dict[str, Any]] = {
    "three shards": {"distributed": SERVER(), "servers": d5.Servers(shards=3), "optimizer": BASES[-1]},
    "compressed": {"distributed": SERVER(compressor=d5.compression.TopK(0.3))},
    "rounded": {"distributed": SERVER(compressor=d5.compression.QSGD(bits=4))},
    "whole rule": {
        "distributed": SERVER(), "optimizer": OPTIMIZERS.ClipNorm(OPTIMIZERS.Momentum(0.05, 0.9), 1.0)
    },
    "averaging": {"distributed": SERVERED["synchronous EASGD"].rule, "optimizer": OPTIMIZERS.SGD(0.05)},
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("name", SERVED)
def test_synchronous_parameter_servers_go_on(name: str, tmp_path: Path) -> None:
    """What the shards hold, and what agents keep of compressed pushes, is part of the checkpoint."""
    check_goes_on(experiment(**SERVED[name]), tmp_path, step=11, steps=20)


@pytest.mark.full
@pytest.mark.parametrize("base", BASES, ids=repr)
def test_every_rule_goes_on(base: d5.Optimizer, tmp_path: Path) -> None:
    check_goes_on(experiment(optimizer=base, agents=2), tmp_path, step=9, steps=16)


def test_rules_optimizers_and_networks_of_the_users_own_go_on(tmp_path: Path) -> None:
    """BatchNorm's running mean, variance and count, and dropout's random numbers."""
    network = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(12, 3)
    )
    wanted = experiment(
        model=network, model_kwargs={}, optimizer=HeavyBall(0.05), distributed=Noisy, agents=3
    )
    check_goes_on(wanted, tmp_path, step=9, steps=16)


@pytest.mark.full
@pytest.mark.parametrize("step", [7, 14, 26])
def test_at_the_end_of_an_epoch_it_goes_on_behind_the_evaluation(step: int, tmp_path: Path) -> None:
    """Push-sum evaluates other numbers than it trains with; 26 steps end the run."""
    wanted = experiment(
        distributed=d5.optimizers.StochasticGradientPush(),
        topology=d5.topologies.DirectedRing(4),
        agents=None,
        epochs=2,
    )
    event = d5.events.Checkpoint(tmp_path, keep=0)
    with d5.simulate(replace(wanted, events=(event,))) as group:
        group.train(26, progress=False)
        group.train(9, progress=False)
        whole = course(group)
    with d5.simulate(wanted, resume=str(Checkpoints(str(tmp_path), step))) as group:
        if step < 26:
            group.train(26 - step, progress=False)
        group.train(9, progress=False)
        assert course(group)[1] == whole[1]


BETWEEN_WORLDS: dict[str, dict[str, Any]] = {
    "buffers": {
        "model": nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 3))
    },
    "gossip": {"distributed": d5.optimizers.DPSGD(), "optimizer": d5.optimizers.Adam(0.01)},
    "error feedback": {
        "distributed": d5.optimizers.CompressedSGD(d5.compression.ErrorFeedback(d5.compression.TopK(0.2)))
    },
    "servers": {
        "distributed": d5.optimizers.ParameterServerSGD(compressor=d5.compression.TopK(0.3)),
        "servers": d5.Servers(shards=2),
    },
}


@pytest.mark.parametrize("name", BETWEEN_WORLDS)
def test_a_checkpoint_of_real_agents_goes_on_in_a_simulation_and_back(name: str, tmp_path: Path) -> None:
    """Agents with real communicators and servers, to step 5; a simulation, to 10; the real ones, to 14."""
    saving = (d5.events.Checkpoint(tmp_path / "saved", every_steps=5, keep=0),)
    wanted = experiment(agents=3, communicator="shared_memory", events=saving, **BETWEEN_WORLDS[name])

    def bits(agents: Any) -> list[bytes]:
        return [agent.flat_parameters().tobytes() for agent in agents]

    with agents_in_threads(wanted, DATA) as (agents, _):
        together(lambda rank: agents[rank].train(10), 3)
        middle = bits(agents)
        together(lambda rank: agents[rank].train(4), 3)
        whole = bits(agents)
    shutil.rmtree(tmp_path / "saved/step-00000010")
    with d5.simulate(wanted, resume=tmp_path / "saved/step-00000005", root=tmp_path) as group:
        assert group.train(5, progress=False).step == 10
        assert bits(group.agents) == middle
    with agents_in_threads(wanted, DATA) as (agents, _):
        together(lambda rank: agents[rank].resume(str(tmp_path / "saved"), 10), 3)
        together(lambda rank: agents[rank].train(4), 3)
        assert bits(agents) == whole


def test_a_run_goes_on_to_the_end_of_its_epochs(tmp_path: Path) -> None:
    wanted = experiment(events=(d5.events.Checkpoint(every_steps=10),))
    with d5.simulate(wanted, root=tmp_path) as group:
        group.train(12, progress=False)
        name = group.run_id
    with d5.simulate(wanted, root=tmp_path, resume=name) as group:
        assert group.train(progress=False).step == 28  # of 4 epochs of 7 steps, from the last, of step 12
        events = group.tables()["events"].to_pylist()
        assert [e["step"] for e in events if e["name"] == "resumed" and e["rank"] == 0] == [12]


def test_a_run_whose_batches_grow_goes_on_to_the_end_of_its_epochs(tmp_path: Path) -> None:
    """The steps to come are fewer an epoch than those before the checkpoint."""
    sizes = d5.schedules.Piecewise(4, {12: 8}, unit="step")
    wanted = experiment(batch_size=sizes, events=(d5.events.Checkpoint(tmp_path, every_steps=13, keep=0),))
    with d5.simulate(wanted) as group:
        end = group.train(progress=False).step
        whole = course(group)
    with d5.simulate(wanted, resume=tmp_path / "step-00000013") as group:
        assert group.train(progress=False).step == end
        assert course(group)[1] == whole[1]


def test_the_last_few_are_kept(tmp_path: Path) -> None:
    with d5.simulate(experiment(events=(d5.events.Checkpoint(tmp_path, every_steps=5, keep=2),))) as group:
        group.train(21, progress=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000020", "step-00000021"]


def test_a_resumed_training_counts_the_time_before(tmp_path: Path) -> None:
    """StopAfterSeconds is a budget of the training, not of the process; a virtual step takes 1 ms or more."""
    budget = d5.events.StopAfterSeconds(0.0205)
    with d5.simulate(experiment(agents=1, events=(d5.events.Checkpoint(tmp_path, every_steps=15),))) as group:
        group.train(15, progress=False)
        per_step = group.seconds / 15
    with d5.simulate(experiment(agents=1, events=(budget,)), resume=tmp_path) as group:
        outcome = group.train(50, progress=False)
    assert outcome.step == int(np.ceil(0.0205 / per_step))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved")
    with d5.simulate(experiment(events=(d5.events.Checkpoint(path, every_steps=3),))) as group:
        group.train(3, progress=False)
    return path


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model_kwargs": {"hidden": (9,)}}, "model_kwargs was"), ({"agents": 2}, "agents was 4, here"),
        ({"optimizer": OPTIMIZERS.SGD(0.1)}, "optimizer was"), ({"batch_size": 8}, "batch_size was 4, here"),
        ({"seed": 4}, "seed was 3, here"),
    ],
)  # fmt: skip
def test_another_experiment_is_refused(changes: dict[str, Any], named: str, saved: Path) -> None:
    """What does not change the numbers may differ."""
    with pytest.raises(ConfigurationError, match=f"of another experiment: its {named}"):
        d5.simulate(experiment(**changes), resume=saved)
    with d5.simulate(experiment(epochs=9, evaluate=False, name="other"), resume=saved) as group:
        assert group.train(4, progress=False).step == 7


def test_what_is_newer_cut_or_no_checkpoint_is_refused_and_leaves_no_run(saved: Path, tmp_path: Path) -> None:
    newer, cut = tmp_path / "newer", tmp_path / "cut"
    for folder in (newer, cut):
        shutil.copytree(saved, folder)
    manifest = newer / "step-00000003" / "checkpoint.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 9, "d5ray": "7.0"}))
    file = cut / "step-00000003" / "agent-2.safetensors"
    file.write_bytes(file.read_bytes()[:-9])
    for folder, words in (
        (newer, "by d5ray 7.0 in format 9, this d5ray reads formats up to 2"),
        (cut, r"agent-2\.safetensors is damaged.*there is no other one"),
        (saved / "nothing-here", "no complete checkpoint"),
        (saved / "step-00000009", "no complete checkpoint"),
    ):
        with pytest.raises((ConfigurationError, StorageError), match=words):
            d5.simulate(experiment(), resume=folder, root=tmp_path / "runs")
    assert not any((tmp_path / "runs").glob("*"))


@pytest.mark.parametrize(
    "changes",
    [
        {"distributed": OPTIMIZERS.ASGD()}, {"distributed": SERVER(backups=1)},
        {"distributed": OPTIMIZERS.ADPSGD(), "topology": d5.topologies.Ring(4), "agents": None},
        {"distributed": SERVER(), "servers": d5.Servers(groups=2)},
    ],
    ids=repr,
)  # fmt: skip
def test_agents_that_do_not_meet_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"Checkpoint saves agents that meet .* those of "):
        experiment(**changes, events=(d5.events.Checkpoint(),))


def test_a_path_that_cannot_be_written_fails_on_all_agents(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    wanted = experiment(events=(d5.events.Checkpoint(tmp_path / "file" / "inside", every_steps=2),))
    with (
        pytest.raises(AgentError, match=r"cannot be written"),
        d5.simulate(wanted) as group,
    ):
        group.train(5, progress=False)
