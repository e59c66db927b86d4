"""Claims about agents of a mesh: against agents that have the whole network, in threads and on Ray."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from torch import nn

import d5ray as d5
from d5ray.agent.outcome import Outcome
from d5ray.errors import ConfigurationError
from d5ray.frameworks.initial_values import labelled_network
from d5ray.kits.parallel.mesh.mesh import Mesh
from d5ray.kits.parallel.mesh.shape import Seat
from d5ray.training.datasets.catalogue import load_dataset
from d5ray.training.datasets.dataset import Dataset, Split
from tests.agents import Rows, agents_in_threads, shares_of
from tests.kits.parallel.mortal import float64_mlp
from tests.together import together

STEPS = 5
LOSS = d5.operators.SoftmaxCrossEntropyLoss()


@pytest.fixture(scope="module")
def digits() -> Dataset:
    """The first 200 training samples, and 40 to test."""
    whole = load_dataset("digits")
    train, test = whole.train, whole.test
    return replace(
        whole,
        train=Split(train.inputs[:200], train.labels[:200]),
        test=Split(test.inputs[:40], test.labels[:40]),
    )


def trained(data: Dataset, **values: Any) -> tuple[list[dict[str, np.ndarray[Any, Any]]], list[Rows]]:
    """The parameters of all agents after some steps, and their rows."""
    given: dict[str, Any] = {
        "model": "mlp", "dataset": data, "optimizer": d5.optimizers.Momentum(0.05, 0.9), "batch_size": 18,
        "seed": 3,
        "executor": "numpy", "timeout_seconds": 30.0,
    }  # fmt: skip
    experiment = d5.Experiment(**given | values)
    with agents_in_threads(experiment, data) as (agents, rows):
        done = together(lambda rank: agents[rank].train(STEPS), len(agents))
        assert [outcome.status for outcome in done] == ["completed"] * len(agents), done
        if experiment.distributed_optimizer.asynchronous:
            together(lambda rank: agents[rank].drain(), len(agents))
            together(lambda rank: agents[rank].conclude(), len(agents))
        return [agent.parameters() for agent in agents], rows


def whole_of(mesh: Mesh, parameters: list[dict[str, Any]], replica: int) -> dict[str, Any]:
    """What the stages of a replica have together."""
    found: dict[str, Any] = {}
    for stage in range(mesh.stages):
        found |= parameters[mesh.rank(Seat(replica, stage, 0))]
    return found


def assert_close(found: dict[str, Any], expected: dict[str, Any], tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.linalg.norm(found[name] - value) <= tolerance * np.linalg.norm(value), name


RULES = [
    (d5.optimizers.AllreduceSGD(), d5.topologies.Complete(2)),
    (d5.optimizers.DPSGD(), d5.topologies.Ring(3)),
    (d5.optimizers.LocalSGD(2), d5.topologies.Complete(2)),
    (d5.optimizers.ShardedAllreduceSGD(), d5.topologies.Complete(2)),
    (d5.optimizers.ParameterServerSGD(), d5.topologies.Complete(2)),  # every stage has servers of its own
]


@pytest.mark.parametrize(("rule", "topology"), RULES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("stages", [2, 3])
def test_replicas_in_stages_train_as_agents_that_have_the_whole_network(
    digits: Dataset, rule: d5.DistributedOptimizer, topology: d5.Topology, stages: int
) -> None:
    """By any distributed optimizer, with different data on every replica: to 1e-10 in float64."""
    own: dict[str, Any] = {"model": float64_mlp(digits), "distributed": rule, "topology": topology}
    expected, _ = trained(digits, **own)
    mesh = Mesh(topology.agents, stages, micro_batches=4)
    found, _ = trained(digits, mesh=mesh, **own)
    for replica in range(mesh.replicas):
        assert_close(whole_of(mesh, found, replica), expected[replica], 1e-10)
    if topology.agents == 3:  # whoever gossips has parameters of his own: the test would see a mix-up
        assert any(np.abs(expected[0][name] - expected[1][name]).max() > 1e-6 for name in expected[0])


@pytest.mark.parametrize("stages", [1, 2])
def test_parts_of_stages_train_as_agents_that_have_the_whole_network(digits: Dataset, stages: int) -> None:
    """Replicas × stages × parts: what a replica's agents have together is what one agent would have."""
    network = float64_mlp(digits)
    products = [node.name for node in network.nodes if node.type in ("Gemm", "MatMul")]
    split: dict[str, Any] = {
        products[0]: d5.networks.ByColumns(),
        products[1]: d5.networks.ByRows(),
        products[2]: d5.networks.ByColumns(),
    }
    own: dict[str, Any] = {
        "model": network,
        "distributed": d5.optimizers.DPSGD(),
        "topology": d5.topologies.Complete(2),
    }
    expected, _ = trained(digits, **own)
    mesh = Mesh(2, stages, parts=2, split=split, micro_batches=3)
    found, rows = trained(digits, mesh=mesh, **own)
    shares = shares_of(
        d5.Experiment(**own, dataset=digits, optimizer=d5.optimizers.SGD(0.1), mesh=mesh), digits
    )
    for replica in range(2):
        assert_close(shares.whole(found, replica), expected[replica], 1e-10)
    sizes = [sum(value.size for value in own.values()) for own in found]
    assert max(sizes) < sum(value.size for value in expected[0].values()) / stages
    assert [set(each.of("samples")) != {None} for each in rows] == [
        rank % (2 * stages) == 0 for rank in range(4 * stages)
    ]


def module() -> nn.Module:
    """Three layers, one of which normalizes."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.LayerNorm(24), nn.Tanh(), nn.Linear(24, 10))


@pytest.mark.full
@pytest.mark.parametrize(
    ("own", "mesh"),
    [
        ({"model": module, "executor": "torch"}, Mesh(2, 2)),
        *(
            ({"executor": framework}, Mesh(2, 2, schedule=d5.pipelines.GPipe(), recompute=True))
            for framework in ("torch", "tensorflow")
        ),
    ],
    ids=["a module of PyTorch", "torch", "tensorflow"],
)
def test_every_framework_computes_stages(digits: Dataset, own: dict[str, Any], mesh: Mesh) -> None:
    """In float32, to 1e-5, against agents that have the whole network under the same framework.

    Also of what a function makes with this seed, against agents that run the module itself.
    """
    expected, _ = trained(digits, agents=2, **own)
    found, _ = trained(digits, mesh=mesh, **own)
    for replica in range(2):
        assert_close(whole_of(mesh, found, replica), expected[replica], 1e-5)


def test_what_a_mesh_records_is_counted_once(digits: Dataset) -> None:
    """Loss and accuracy at every stage, samples and bubble of a replica once, a stage's times by itself."""
    _, whole = trained(digits, agents=2)
    _, rows = trained(digits, mesh=Mesh(2, 2, micro_batches=6))
    for replica in range(2):
        own = rows[2 * replica : 2 * replica + 2]
        for each in own:
            assert each.of("loss") == pytest.approx(whole[replica].of("loss"), rel=1e-5)
            assert each.of("test_accuracy") == whole[replica].of("test_accuracy")
            assert len(each.of("stage_compute_time")) == STEPS
        assert own[0].of("samples") == whole[replica].of("samples")
        assert set(own[1].of("samples")) == {None}
        assert own[0].of("bubble_formula") == pytest.approx([1 / 7] * STEPS)
        assert all(0 < share < 1 for share in own[0].of("bubble_share"))
        assert own[1].of("bubble_share") == []
        activations = 18 * 64 * 4  # of a step: what passes the cut behind the hidden layer, and comes back
        for each in own:
            assert all(activations <= sent < activations + 1000 for sent in each.of("stage_bytes_sent"))
            assert each.of("part_bytes_sent") == [0] * STEPS


def test_what_parts_send_is_recorded(digits: Dataset) -> None:
    """What the table of exchanges says."""
    split: dict[str, Any] = {"1": d5.networks.BySamples(), "3": d5.networks.ByColumns()}
    mesh = Mesh(1, parts=2, micro_batches=1, split=split)
    network = float64_mlp(digits)
    _, rows = trained(digits, mesh=mesh, model=network)
    splitting = d5.networks.Splitting(
        labelled_network(network, {}, (1, 8, 8), 10, LOSS, seed=0).network, split, 2
    )
    expected = sum(d5.networks.exchange_table(splitting, {"batch": 18})["sent_bytes"].to_pylist())
    for each in rows:
        assert each.of("part_bytes_sent") == [expected] * STEPS


def test_a_default_mesh_leaves_no_stage_without_parameters(digits: Dataset) -> None:
    """Of LeNet in four stages, most of whose nodes have none."""
    experiment = d5.Experiment("lenet", digits, d5.optimizers.SGD(0.1), mesh=Mesh(1, 4))
    shares = shares_of(experiment, digits)
    assert all(shares.at(stage).parameters > 0 for stage in range(4))
    values = {"hidden": (8,) * 7}
    chunks = replace(
        experiment,
        model="mlp",
        model_kwargs=values,
        mesh=Mesh(1, 4, schedule=d5.pipelines.Interleaved(2)),
        agents=None,
    )
    for stage in range(4):
        own = shares_of(chunks, digits).at(stage).pieces
        assert [len(piece.network.parameters) for piece in own] == [2, 2]  # a layer's weights and biases
    with pytest.raises(ConfigurationError, match="leaves parameters to train in each"):
        shares_of(replace(experiment, mesh=Mesh(1, 6), agents=None, topology=None), digits)


def with_event(data: Dataset, event: d5.Event, steps: int) -> list[Outcome]:
    """How it ended with two replicas of two stages, within seconds."""
    experiment = d5.Experiment(
        "mlp", data, d5.optimizers.SGD(0.1), mesh=Mesh(2, 2), batch_size=10, executor="numpy", events=event,
        timeout_seconds=20.0,
    )  # fmt: skip
    with agents_in_threads(experiment, data) as (agents, _):
        return together(lambda rank: agents[rank].train(steps), 4, seconds=15.0)


def test_an_event_of_one_stage_ends_them_all(digits: Dataset) -> None:
    """Who stops decides by himself; the others of his network, and the replicas, stop with him."""

    class OneStops(d5.Event):
        stops = True

        def after_step(self, moment: d5.events.Moment) -> None:
            if moment.rank == 3 and moment.step == 2:
                moment.stop("enough")

    done = with_event(digits, OneStops(), 30)
    assert len({outcome.step for outcome in done}) == 1 and done[0].step < 30
    assert all(outcome.completed for outcome in done)


def test_a_stage_that_fails_ends_the_others(digits: Dataset) -> None:
    """The one that raised says why, the others lose a peer, within seconds."""

    class OneRaises(d5.Event):
        def before_step(self, moment: d5.events.Moment) -> None:
            if moment.rank == 1 and moment.step == 2:
                raise ValueError("no more of this")

    done = with_event(digits, OneRaises(), 10)
    assert [outcome.status for outcome in done] == ["peer_lost", "failed", "peer_lost", "peer_lost"]
    assert "no more of this" in done[1].reason


def test_a_cut_that_does_not_fit_the_mesh_is_refused(digits: Dataset) -> None:
    """Another number of stages."""
    network = float64_mlp(digits)
    names = [node.name for node in network.nodes]
    with pytest.raises(ConfigurationError, match="makes 2 pieces of the network, the mesh has 3 stages"):
        trained(digits, model=network, mesh=Mesh(1, 3, cut=d5.pipelines.Cut((names[2],))))


def test_seats_are_counted_by_replica_stage_and_part() -> None:
    """rank = (replica · stages + stage) · parts + part, and back; groups are those that share two of them."""
    mesh = Mesh(2, 3, parts=2, split={"fc": d5.networks.ByColumns()})
    assert mesh.agents == 12
    assert [mesh.rank(mesh.seat(rank)) for rank in range(12)] == list(range(12))
    assert mesh.seat(9) == Seat(1, 1, 1)
    assert mesh.stages_of(9) == (7, 9, 11)
    assert mesh.parts_of(9) == (8, 9)
    assert mesh.replicas_of(9) == (3, 9)
