"""Pieces of a network, chained by hand: what a pipeline does, without one"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from d5ray.kits.parallel.executors import piece_executor_by_name
from d5ray.kits.parallel.stages.cut import Cut, Cutting
from d5ray.kits.parallel.stages.cutting import pieces
from d5ray.kits.parallel.stages.piece import Piece
from d5ray.kits.parallel.stages.piece_executor import PieceExecutor
from d5ray.networks.executors.labelled_network import labelled
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from tests.frameworks.small_networks import LOSS, Array, error, executor, gradients_of

Batch = dict[str, Array]
ONE = Cut(())


@dataclass
class Chain:
    """Places with their pieces; what one piece gives, others get by way of host memory."""

    places: Sequence[PieceExecutor]
    results: list[Batch] = field(default_factory=list)  # of the micro-batches of the last pass

    @property
    def pieces(self) -> list[tuple[PieceExecutor, int, Piece]]:
        """With the chunks that they are, in their order."""
        found = [(each, chunk, piece) for each in self.places for chunk, piece in enumerate(each.pieces)]
        return sorted(found, key=lambda one: one[2].index)

    def begin(self) -> None:
        self.results = []
        for each in self.places:
            each.begin_pass()

    def forward(self, micro: int, batch: Batch) -> None:
        """All pieces on one micro-batch."""
        known = dict(batch)
        for each, chunk, piece in self.pieces:
            made = each.forward(chunk, micro, {name: each.put(known[name]) for name in piece.network.inputs})
            known |= {name: each.get(value) for name, value in made.items()}
        self.results.append({name: known[name] for _, _, piece in self.pieces for name in piece.results})

    def backward(self, micro: int, weight: float) -> None:
        """The same back, a tensor's gradient being the sum over its readers."""
        sums: Batch = {}
        for each, chunk, piece in reversed(self.pieces):
            given = {name: each.put(sums[name]) for name in piece.outgoing if name in piece.differentiated}
            given |= {name: weight for name in piece.results if name == "loss"}
            for name, value in each.backward(chunk, micro, given).items():
                found = np.array(each.get(value))
                sums[name] = sums[name] + found if name in sums else found

    def train(self, *batches: Batch) -> float:
        """One pass over micro-batches, all forwards first; the mean loss over all samples."""
        self.begin()
        weights = weights_of(batches)
        for micro, batch in enumerate(batches):
            self.forward(micro, batch)
        for micro, weight in enumerate(weights):
            self.backward(micro, weight)
        return sum(float(made["loss"]) * w for made, w in zip(self.results, weights, strict=True))

    def inference(self, batch: Batch) -> Batch:
        known, results = dict(batch), dict[str, Array]()
        for each, chunk, piece in self.pieces:
            given = {name: each.put(known[name]) for name in piece.network.inputs if name in known}
            found = {name: each.get(value) for name, value in each.inference(chunk, given).items()}
            known |= found
            results |= {name: value for name, value in found.items() if name in piece.results}
        return results

    def gradients(self) -> Batch:
        """By parameter; of tied ones the sum over the places that hold them."""
        found: Batch = {}
        for each in self.places:
            for name, value in _tensors(each):
                found[name] = found[name] + value if name in found else value.copy()
        return found

    def state(self) -> Batch:
        return {name: value for each in self.places for name, value in each.named_state().items()}


def _tensors(place: PieceExecutor) -> Iterator[tuple[str, Array]]:
    flat = place.get(place.gradients)
    for slot in place.slots:
        yield slot.name, flat[slot.offset : slot.offset + slot.size].reshape(slot.shape)


def chain(
    framework: str,
    network: Network,
    cut: Cutting,
    *,
    recompute: bool = False,
    seed: int = 3,
    replica: int = 0,
) -> Chain:
    """A place for each piece."""
    made = Chain([place(framework, [piece], recompute) for piece in pieces(network, cut)])
    for each in made.places:
        each.draw_from(seed, replica)
    return made


def place(framework: str, own: Sequence[Piece], recompute: bool = False) -> PieceExecutor:
    return piece_executor_by_name(framework)(own, recompute=recompute)


def weights_of(batches: Sequence[Batch]) -> list[float]:
    """Of each micro-batch in the mean over all samples."""
    sizes = [len(batch["labels"]) for batch in batches]
    return [size / sum(sizes) for size in sizes]


def divided(batch: Batch, *sizes: int) -> list[Batch]:
    """The batch in micro-batches of these sizes."""
    ends = np.cumsum(sizes)
    return [
        {name: value[end - size : end] for name, value in batch.items()}
        for size, end in zip(sizes, ends, strict=True)
    ]


def uncut(framework: str, network: Network, batch: Batch) -> tuple[float, Batch, Batch]:
    """Loss, gradients and state after a training pass of the plain executor."""
    made = executor(framework, network.copy())
    loss = float(made.inference_and_backprop(batch)["loss"])
    return loss, gradients_of(made), made.state


def check_same(found: Chain, loss: float, expected: tuple[float, Batch, Batch], within: float) -> None:
    assert loss == pytest.approx(expected[0], rel=within)
    gradients, state = found.gradients(), found.state()
    assert gradients.keys() == expected[1].keys() and state.keys() == expected[2].keys()
    for name, value in expected[1].items():
        assert error(gradients[name], value) < within, name
    for name, value in expected[2].items():
        assert error(state[name], value) < within, name
    assert all(each.kept_bytes == 0 for each in found.places)


def tied_network() -> tuple[Network, Batch]:
    """Tokens in, scores of tokens out by the same table; one hidden layer between, and a way around it."""
    generator = np.random.default_rng(7)
    network = Network("tied")
    network.add_input("input", TensorDescriptor("int64", ("batch",)))
    for name, shape in (("table", (9, 4)), ("w", (4, 4))):
        network.add_parameter(name, generator.standard_normal(shape))
    for node in (
        Node("Gather", ("table", "input"), ("vectors",), name="look_up"),
        Node("MatMul", ("vectors", "w"), ("product",), name="multiply"),
        Node("Tanh", ("product",), ("hidden",), name="bend"),
        Node("Add", ("hidden", "vectors"), ("sum",), name="go_around"),
        Node("Transpose", ("table",), ("turned",), {"perm": (1, 0)}, name="turn"),
        Node("MatMul", ("sum", "turned"), ("output",), name="score"),
    ):
        network.add_node(node)
    network.add_output("output")
    made = labelled(network, LOSS, ()).network
    tokens = generator.integers(0, 9, 6)
    return made, {"input": tokens, "labels": generator.integers(0, 9, 6)}
