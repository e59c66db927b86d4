"""Claims about split networks: the parts compute what the whole does, and exchange what is listed"""

import pickle
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.distributed.communicators import backends
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.group.group import Group, Store
from d5ray.distributed.group.rendezvous import Rendezvous
from d5ray.distributed.topologies.topology import Complete
from d5ray.errors import ConfigurationError
from d5ray.frameworks.arrays.library import NumPy
from d5ray.frameworks.labelled_executor import LabelledExecutor
from d5ray.kits.parallel.splitting.divisions import (
    ByColumns,
    ByHeads,
    ByInputChannels,
    ByOutputChannels,
    ByRows,
    BySamples,
    Division,
)
from d5ray.kits.parallel.splitting.layouts import Divided
from d5ray.kits.parallel.splitting.plans import FullyConnectedSplit, TransformerSplit
from d5ray.kits.parallel.splitting.splitting import Plan, Splitting
from d5ray.kits.parallel.splitting.traffic import exchanges
from d5ray.networks.layers.from_layers import network_from_layers
from d5ray.networks.layers.layers import Dropout, Flatten, Linear, Relu
from d5ray.networks.network import Network
from d5ray.operators.collectives import DOMAIN, Collectives
from tests.distributed.elsewhere import elsewhere
from tests.distributed.forming import Former, on_all
from tests.frameworks.small_networks import BATCH, FRAMEWORKS, LOSS, Array, case, executor
from tests.kits.parallel.splits import BOUNDS, Pass, check, check_split, close, run

SIZES = {"batch": BATCH}
CASES: dict[str, tuple[str, Plan, int]] = {
    "two layers": ("mlp", {"1": ByColumns(), "3": ByRows()}, 2),
    "columns behind columns": ("mlp", {"1": ByColumns(), "3": ByColumns()}, 4),
    "rows behind rows": ("mlp", {"1": ByRows(), "3": ByRows()}, 2),
    "channels": (
        "lenet",
        {"0": ByOutputChannels(), "3": ByInputChannels(), "7": ByColumns(), "9": ByRows()},
        3,
    ),
    "convolutions by samples": ("lenet", FullyConnectedSplit(BySamples()), 2),
    "channels with statistics": (
        "resnet8",
        {
            "0": ByOutputChannels(),
            "3.body.0": ByInputChannels(),
            "3.body.3": ByOutputChannels(),
            "5.body.0": ByOutputChannels(),
            "5.body.3": ByInputChannels(),
        },
        4,
    ),
    "blocks": ("transformer", TransformerSplit(), 4),
    "embedding by columns": (
        "transformer",
        {"0": ByColumns(), "2.body.1.into": ByColumns(), "2.body.1.mixed": ByHeads(), "3.body.3": ByRows()},
        2,
    ),
    "samples": ("transformer", {"0": BySamples(), "3.body.1": BySamples()}, 3),
}


def checked(
    groups: Former, framework: str, made: tuple[str, Plan, int], dtype: str
) -> tuple[Splitting, list[Pass]]:
    name, plan, parts = made
    found = case(name, dtype)
    bound = 2e-8 if framework == "tensorflow" and name == "transformer" else BOUNDS[dtype]
    return check_split(groups.members, framework, found.network, plan, parts, found.given, bound)


@pytest.mark.parametrize("framework", FRAMEWORKS[:2])
@pytest.mark.parametrize("name", CASES)
def test_the_parts_give_what_the_whole_network_gives(groups: Former, framework: str, name: str) -> None:
    """Outputs, loss, gradients and running statistics; and the calls are those that are listed."""
    splitting, found = checked(groups, framework, CASES[name], "float64")
    listed = exchanges(splitting)
    forward = sum(each.direction == "forward" for each in listed)
    assert [each.operations for each in found] == [(len(listed), forward)] * splitting.parts
    assert any(isinstance(each, Divided) for each in splitting.parameters.values()) or name == "samples"


def test_parts_that_meet_over_sockets(groups: Former) -> None:
    """Four of them, which sum and gather."""
    found = case("mlp", "float64")
    plan: Plan = {"1": ByRows(), "3": ByColumns()}
    splitting, _ = check_split(
        lambda _, parts: groups.members("socket", parts), "torch", found.network, plan, 4, found.given, 1e-10
    )
    assert {each.collective for each in exchanges(splitting)} == {"allreduce", "all_gather"}


def test_a_block_of_a_transformer_exchanges_what_megatron_says(groups: Former) -> None:
    """Two allreduces forwards and two backwards for each block, of (batch, length, width) numbers."""
    splitting, found = checked(groups, "numpy", ("transformer", TransformerSplit(), 2), "float64")
    depth, length, width = 2, 7, 16
    assert [(each.collective, each.direction) for each in exchanges(splitting)] == [
        *[("allreduce", "forward")] * 2 * depth,
        *[("allreduce", "backward")] * 2 * depth,
    ]
    activations = BATCH * length * width * 8
    assert [each.bytes_sent for each in found] == [4 * depth * activations] * 2
    table = d5.networks.exchange_table(splitting, SIZES)
    assert table["payload_bytes"].to_pylist() == [activations] * 4 * depth
    assert set(table["formula"].to_pylist()) == {"2 (p − 1) / p · batch · 7 · 16 · 8"}


@pytest.mark.parametrize("name", ["columns behind columns", "rows behind rows", "convolutions by samples"])
def test_the_bytes_that_are_sent_are_those_of_the_formula(groups: Former, name: str) -> None:
    """Of two parts, for which every backend sends what must be sent.

    What is gathered for parts has its gradients summed in parts: no allreduce of which a part is taken.
    """
    network, plan, _ = CASES[name]
    splitting, found = checked(groups, "numpy", (network, plan, 2), "float64")
    listed = exchanges(splitting)
    if name == "columns behind columns":
        called = [(each.direction, each.collective) for each in listed]
        assert called == [*[("forward", "all_gather")] * 2, ("backward", "reduce_scatter")]
    total = sum(each.sent_bytes(SIZES) for each in listed)
    assert [each.bytes_sent for each in found] == [total] * 2
    assert total == sum(d5.networks.exchange_table(splitting, SIZES)["sent_bytes"].to_pylist())


def test_a_sum_of_which_parts_are_read_is_made_in_parts(groups: Former) -> None:
    """Rows behind rows, without a bias or an activation between: a reduce_scatter forwards."""
    network = Network("rows")
    network.add_input("x", d5.TensorDescriptor("float64", ("batch", 4)))
    for name, shape in (("a", (4, 6)), ("b", (6, 8)), ("c", (8, 3))):
        network.add_parameter(name, np.random.default_rng(3).standard_normal(shape))
    for name, source in (("a", "x"), ("b", "a.out"), ("c", "b.out")):
        network.add_node(d5.Node("MatMul", (source, name), (f"{name}.out",), name=f"{name}.product"))
    network.add_node(d5.Node("ReduceSum", ("c.out",), ("loss",), {"keepdims": 0}))
    network.add_output("loss")
    given = {"x": np.random.default_rng(4).standard_normal((5, 4))}
    plan: Plan = {"b.product": ByRows(), "c.product": ByRows()}
    splitting, found = check_split(groups.members, "numpy", network, plan, 2, given, 1e-10)
    assert [(each.direction, each.collective) for each in exchanges(splitting)] == [
        ("forward", "reduce_scatter"),
        ("forward", "allreduce"),
        ("backward", "all_gather"),
        ("backward", "all_gather"),
    ]
    assert found[0].operations[0] == 4


WAYS: dict[str, tuple[Division, ...]] = {
    "Conv": (ByOutputChannels(), ByInputChannels(), BySamples()),
    "ConvTranspose": (ByOutputChannels(), ByInputChannels()),
    "Gemm": (ByColumns(), ByRows(), BySamples()),
    "MatMul": (ByColumns(), ByRows(), BySamples()),
    "Gather": (ByColumns(), ByRows()),
    "Attention": (ByHeads(), BySamples()),
    "MaxPool": (BySamples(),),
    "Relu": (BySamples(),),
    "Add": (BySamples(),),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["mlp", "lenet", "resnet8", "transformer", "lstm", "unet", "mobilenet", "vgg11"]
)
@pytest.mark.parametrize("seed", range(2))
def test_plans_drawn_at_random(groups: Former, name: str, seed: int) -> None:
    """Whatever is divided in whatever way gives what the whole gives, with the calls that are listed."""
    found, random = case(name, "float64"), np.random.default_rng(seed)
    plan: dict[str, Division] = {}
    for node in found.network.nodes:
        if node.type in WAYS and random.random() < (0.4, 1.0)[seed]:
            drawn = {**plan, node.name: WAYS[node.type][random.integers(len(WAYS[node.type]))]}
            with suppress(ConfigurationError):  # sizes that two parts do not divide
                Splitting(found.network, drawn, 2)
                plan = drawn
    splitting, parts = check_split(groups.members, "numpy", found.network, plan, 2, found.given, 1e-9)
    assert [each.operations[0] for each in parts] == [len(exchanges(splitting))] * 2


LAYERS = (Flatten(), Linear(12), Relu(), Dropout(0.4), Linear(8), Dropout(0.3), Relu(), Linear(4))
DROPPING: Plan = {"1": ByColumns(), "4": ByRows(), "7": ByColumns()}


def dropping() -> tuple[Network, dict[str, Array]]:
    """A network with a Dropout of what is divided, and one of what is whole; and a batch of more than one."""
    random = np.random.default_rng(1)
    sizes = {"1": (12, 16), "4": (8, 12), "7": (4, 8)}
    values = {f"{at}.weight": random.standard_normal(shape) for at, shape in sizes.items()}
    values |= {f"{at}.bias": random.standard_normal(shape[0]) for at, shape in sizes.items()}
    network = network_from_layers(LAYERS, (1, 4, 4), values)
    network.add_loss(scores="output")
    given = {"input": random.standard_normal((9, 1, 4, 4)), "labels": random.integers(0, 4, 9)}
    return network, given


@pytest.mark.parametrize("framework", [FRAMEWORKS[0], FRAMEWORKS[2]])
@pytest.mark.parametrize("plan", [DROPPING, {"1": BySamples()}], ids=["features", "samples"])
def test_parts_drop_what_the_whole_network_drops(groups: Former, framework: str, plan: Plan) -> None:
    """The mask of the whole is drawn on every part, and its part used; also of nine samples in two parts."""
    network, given = dropping()
    check_split(groups.members, framework, network, plan, 2, given, BOUNDS["float64"])


@pytest.mark.full
def test_parts_drop_the_same_under_pytorch() -> None:
    """Whose generator is one for a process, so that the second part has its own."""
    network, given = dropping()
    splitting = Splitting(network, DROPPING, 2)
    with closing(Rendezvous()) as rendezvous, elsewhere(second_part, rendezvous.address) as other:
        member = backends.join("socket", Group("pair", 0, 0, 2, rendezvous.address), Complete(2))
        expected = run("torch", network.copy(), given)
        found = run("torch", splitting.part(0), given, collectives=Collectives(member))
        check([found, other.said()], expected, splitting, BOUNDS["float64"])
        member.close()


def second_part(pipe: Any, address: Store) -> None:
    network, given = dropping()
    member = backends.join("socket", Group("pair", 0, 1, 2, address), Complete(2))
    part = Splitting(network, DROPPING, 2).part(1)
    pipe.send(run("torch", part, given, collectives=Collectives(member)))
    pipe.recv()


def test_parts_that_train_stay_parts_of_the_whole_that_trains(groups: Former) -> None:
    """Ten steps of gradient descent on flat buffers; joined, they are the whole network's parameters."""
    found = case("resnet8", "float64")
    splitting = Splitting(found.network, CASES["channels with statistics"][1], 4)

    def trained(network: Network, **options: Any) -> dict[str, Array]:
        inner = executor("numpy", network, **options)
        labelled = replace(found.labelled, network=network)
        made = LabelledExecutor(inner, labelled, LOSS, NumPy())  # type: ignore[arg-type]
        for step in range(10):
            made.inference_and_backprop(np.roll(found.inputs, step, 1), found.labels)
            made.parameters -= 0.05 * made.gradients
        return {**made.named_parameters(), **made.named_state()}

    parts = on_all(
        groups.members("shared_memory", 4),
        lambda member: trained(splitting.part(member.rank), collectives=Collectives(member)),
    )
    close(splitting.joined(parts), trained(found.network), 1e-9)


def test_a_part_survives_being_written_and_read(groups: Former) -> None:
    """As agents get it: an ONNX message, with the exchanges in a domain of their own."""
    found = case("transformer", "float64")
    splitting = Splitting(found.network, TransformerSplit(), 2)
    part = splitting.part(1)
    again = pickle.loads(pickle.dumps(part))
    assert again.fingerprint == part.fingerprint != splitting.part(0).fingerprint
    assert {node.domain for node in again.nodes} == {"", DOMAIN}
    assert tuple(again.parameters) == tuple(part.parameters) == tuple(found.network.parameters)
    assert again.inputs == part.inputs and again.outputs == part.outputs == found.network.outputs


def test_one_part_is_the_whole_network() -> None:
    network = case("mlp").network
    assert d5.networks.split(network, {"1": ByColumns()}, 0, 1).fingerprint == network.fingerprint
    assert exchanges(Splitting(network, {"1": ByColumns()}, 1)) == ()


@pytest.mark.full
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("samples", [1, 5])
def test_a_batch_that_the_parts_do_not_divide(groups: Former, framework: str, samples: int) -> None:
    """The first part has one sample more, the second may have none: what comes out is the whole network's."""
    name, plan, parts = CASES["convolutions by samples"]
    found = case(name, "float64")
    given = {key: value[:samples] for key, value in found.given.items()}
    check_split(groups.members, framework, found.network, plan, parts, given, BOUNDS["float64"])


@pytest.mark.parametrize("framework", FRAMEWORKS[:2])
def test_attention_of_samples_that_three_parts_do_not_divide(groups: Former, framework: str) -> None:
    name, plan, parts = CASES["samples"]
    found = case(name, "float64")
    given = {key: value[:4] for key, value in found.given.items()}
    check_split(groups.members, framework, found.network, plan, parts, given, BOUNDS["float64"])


def test_an_executor_of_a_part_needs_the_group_of_the_parts(groups: Former) -> None:
    found = case("mlp")
    part = d5.networks.split(found.network, {"1": ByColumns(), "3": ByRows()}, 0, 2)
    for framework in ("numpy", "torch"):
        with pytest.raises(ConfigurationError, match=r"collectives=Collectives\(communicator\)"):
            run(framework, part, found.given)
        other = groups.members("shared_memory", 4)[3]
        with pytest.raises(
            ConfigurationError, match=r"part 0 of 2, and the communicator is that of rank 3 of 4"
        ):
            run(framework, part, found.given, collectives=Collectives(other))


def test_a_part_in_micro_batches(groups: Former) -> None:
    """Each of which is exchanged by itself; samples that are divided between parts are not taken apart."""
    found = case("lenet", "float64")
    plan = CASES["channels"][1]
    splitting = Splitting(found.network, plan, 3)

    def one(member: Communicator) -> dict[str, Array]:
        inner = executor("numpy", splitting.part(member.rank), collectives=Collectives(member))
        made = d5.networks.MicroBatched(inner, 2)
        made.inference_and_backprop(found.given)
        return {name: made.network.fetch_tensors([slope])[0] for name, slope in made.network.gradient()}

    parts = on_all(groups.members("shared_memory", 3), one)
    close(splitting.joined(parts), run("numpy", found.network.copy(), found.given).gradients, 1e-10)
    by_samples = Splitting(found.network, FullyConnectedSplit(BySamples()), 3).part(0)
    with pytest.raises(ConfigurationError, match="divides the samples between the parts"):
        d5.networks.MicroBatched(
            executor("numpy", by_samples, collectives=Collectives(groups.members("shared_memory", 3)[0])), 2
        ).inference_and_backprop(found.given)
