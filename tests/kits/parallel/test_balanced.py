"""Claims about balanced cuts: none is better, and what is measured is what operators take"""

from collections.abc import Iterable, Iterator
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.frameworks import numpy as d5fw
from d5ray.kits.parallel.stages.balanced import Balanced
from d5ray.kits.parallel.stages.cut import groups
from d5ray.kits.parallel.stages.cutting import pieces
from d5ray.kits.parallel.stages.piece import Piece
from d5ray.networks.executors.costs import NetworkCosts, counted_costs, operator_costs
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

RATE = 1e6  # bytes in a second


@st.composite
def problems(draw: st.DrawFn) -> tuple[Network, NetworkCosts]:
    """A chain of additions with ways around, parameters read here and there, and costs of any kind."""
    count = draw(st.integers(3, 8))
    network = Network("random")
    network.add_input("t0", TensorDescriptor("float32", ("batch", 2)))
    for place in range(2):
        network.add_parameter(f"w{place}", np.ones((1, 2), np.float32))
    for place in range(count):
        other = draw(st.sampled_from([*(f"t{before}" for before in range(place + 1)), "w0", "w1"]))
        network.add_node(Node("Add", (f"t{place}", other), (f"t{place + 1}",), name=f"n{place}"))
    network.add_output(f"t{count}")
    numbers = st.integers(0, 20)
    costs = NetworkCosts(
        {f"n{place}": float(draw(numbers)) for place in range(count)},
        {},
        {f"n{place}": draw(numbers) for place in range(count)},
        {f"t{place + 1}": draw(numbers) * 10**5 for place in range(count)},
        measured=True,
    )
    return network, costs


def moved(names: Iterable[str], piece: Piece, costs: NetworkCosts) -> int:
    """Bytes, twice where the gradient comes back."""
    return sum(costs.tensor_bytes[name] * (1 + (name in piece.differentiated)) for name in names)


def judged(
    network: Network, cut: d5.pipelines.Cut, costs: NetworkCosts, balanced: Balanced
) -> tuple[float, int, int]:
    """Seconds of the slowest piece, all bytes that are received, bytes of the largest: from the pieces."""
    slowest, received, largest = 0.0, 0, 0
    own = pieces(network, cut)
    for piece in own:
        nodes = [node.name for node in piece.network.nodes]
        into, out = moved(piece.incoming, piece, costs), moved(piece.outgoing, piece, costs)
        slowest = max(slowest, sum(costs.seconds[name] for name in nodes) + (into + out) / RATE)
        received += into
        kept = balanced.kept_micro_batches or len(own) - piece.index
        parameters = sum(value.nbytes for value in piece.network.parameters.values())
        memory = balanced.copies * parameters + kept * sum(costs.kept_bytes[name] for name in nodes)
        largest = max(largest, memory)
    return slowest, received, largest


def all_cuts(network: Network, stages: int) -> Iterator[d5.pipelines.Cut]:
    names = [group[0].name for group in groups(network)]
    for begins in combinations(names[1:], stages - 1):
        yield d5.pipelines.Cut(begins)


@settings(max_examples=60, deadline=None)
@given(problems(), st.integers(1, 4), st.integers(1, 400), st.sampled_from([None, 1, 3]), st.booleans())
def test_no_contiguous_cut_is_better(
    problem: tuple[Network, NetworkCosts], stages: int, limit: int, kept: int | None, trains: bool
) -> None:
    """Of all that there are within the limit: none is quicker, none as quick moves fewer bytes.

    Where every stage is to train, of all those whose stages have parameters.
    """
    network, costs = problem
    if stages > len(network.nodes):
        return
    balanced = Balanced(stages, costs, limit, 2, kept, RATE, trains)
    cuts = [
        cut
        for cut in all_cuts(network, stages)
        if not trains or all(piece.network.parameters for piece in pieces(network, cut))
    ]
    if not cuts:
        with pytest.raises(ConfigurationError, match="parameters to train in each"):
            balanced.cut(network)
        return
    every = [judged(network, cut, costs, balanced) for cut in cuts]
    within = [(slowest, received) for slowest, received, largest in every if largest <= limit]
    if not within:
        least = min(largest for _, _, largest in every)
        with pytest.raises(ConfigurationError, match=rf"within {limit:,} bytes: the least .* is {least:,} "):
            balanced.cut(network)
        return
    slowest, received, largest = judged(network, balanced.cut(network), costs, balanced)
    assert largest <= limit
    assert slowest == pytest.approx(min(within)[0])
    assert received == min(bytes for seconds, bytes in within if seconds <= slowest * (1 + 1e-9))


def perceptron(widths: tuple[int, ...]) -> Network:
    network = Network("perceptron")
    network.add_input("h0", TensorDescriptor("float32", ("batch", widths[0])))
    generator = np.random.default_rng(1)
    for place, (before, after) in enumerate(pairwise(widths)):
        network.add_parameter(f"w{place}", generator.standard_normal((before, after)).astype(np.float32))
        network.add_node(Node("MatMul", (f"h{place}", f"w{place}"), (f"h{place + 1}",), name=f"m{place}"))
    network.add_node(Node("ReduceMean", (f"h{len(widths) - 1}",), ("loss",), {"keepdims": 0}, name="mean"))
    network.add_output("loss")
    return network


def test_equal_layers_are_divided_equally() -> None:
    """Twelve products of one size into three stages, by counted operations."""
    network = perceptron((64,) * 13)
    own = pieces(network, Balanced(3))
    assert [len(piece.network.nodes) for piece in own] == [4, 4, 5]
    assert Balanced(3).cut(network) == d5.pipelines.Cut(
        ("m4", "m8")
    )  # what everyone is given who is to cut alike


def test_measured_costs_are_what_operators_take_here() -> None:
    """A product of 35,000 times the operations takes longer; tensors have their bytes; no node is missing."""
    network = perceptron((8, 8, 1500, 1500, 8))
    batch = {"h0": np.ones((64, 8), np.float32)}
    costs = operator_costs(d5fw.from_onnx, network, batch, seconds=0.05)
    assert costs.seconds.keys() == {node.name for node in network.nodes} and costs.measured
    assert costs.seconds["m2"] > 5 * costs.seconds["m0"] > 0
    assert costs.tensor_bytes == {f"h{n}": 64 * w * 4 for n, w in ((1, 8), (2, 1500), (3, 1500), (4, 8))} | {
        "loss": 4
    }
    assert costs.flops == counted_costs(network, 64).flops
    assert Balanced(2, costs).cut(network).nodes != ("m1",)  # leaves more beside what takes longest


def test_balances_that_cannot_be_are_refused() -> None:
    network = perceptron((4, 4))
    with pytest.raises(
        ConfigurationError, match=r"the network's 2 nodes cannot be cut into 3 stages.* take 2 or fewer"
    ):
        pieces(network, Balanced(3))
    with pytest.raises(ConfigurationError, match="stages is 0: it must be an integer"):
        Balanced(0)
    with pytest.raises(ConfigurationError, match=r"costs have no node 'm1', and lack 1 of 3"):
        Balanced(2, counted_costs(network)).cut(perceptron((4, 4, 4)))
