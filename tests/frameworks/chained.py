"""Pieces of a network, chained by hand: what a pipeline does, without one"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from d5ray.frameworks import piece_executor_by_name
from d5ray.networks.network import Network
from d5ray.networks.stages.cut import Cutting
from d5ray.networks.stages.cutting import pieces
from d5ray.networks.stages.piece_executor import PieceExecutor
from tests.frameworks.small_networks import Array


@dataclass
class Chain:
    """An executor for each piece; what one gives, the next ones get by way of host memory."""

    executors: Sequence[PieceExecutor]
    outputs: list[dict[str, Array]] = field(default_factory=list)  # of the micro-batches of the last pass

    def begin(self) -> None:
        self.outputs = []
        for each in self.executors:
            each.begin_pass()

    def forward(self, micro: int, batch: dict[str, Array]) -> None:
        """All pieces on one micro-batch."""
        known = dict(batch)
        for each in self.executors:
            (piece,) = each.pieces
            made = each.forward(0, micro, {name: each.put(known[name]) for name in piece.network.inputs})
            known |= {name: each.get(value) for name, value in made.items()}
        self.outputs.append({name: known[name] for each in self.executors for name in each.pieces[0].results})

    def backward(self, micro: int, weight: float) -> None:
        """The same back, a tensor's gradient being the sum over its readers."""
        sums: dict[str, Array] = {}
        for each in reversed(self.executors):
            (piece,) = each.pieces
            given = {
                name: each.put(sums[name]) for name in piece.outgoing if name in piece.differentiated
            } | {name: weight for name in piece.results if name == "loss"}
            for name, value in each.backward(0, micro, given).items():
                found = np.array(each.get(value))
                sums[name] = sums[name] + found if name in sums else found

    def train(self, *batches: dict[str, Array]) -> float:
        """One pass over micro-batches; the mean loss over all samples."""
        self.begin()
        weights = weights_of(batches)
        for micro, batch in enumerate(batches):
            self.forward(micro, batch)
        for micro, weight in enumerate(weights):
            self.backward(micro, weight)
        return sum(float(made["loss"]) * w for made, w in zip(self.outputs, weights, strict=True))

    def inference(self, batch: dict[str, Array]) -> dict[str, Array]:
        known = dict(batch)
        results: dict[str, Array] = {}
        for each in self.executors:
            (piece,) = each.pieces
            given = {name: each.put(known[name]) for name in piece.network.inputs if name in known}
            found = {name: each.get(value) for name, value in each.inference(0, given).items()}
            known |= found
            results |= {name: value for name, value in found.items() if name in piece.results}
        return results

    def gradients(self) -> dict[str, Array]:
        """By parameter; of tied ones the sum over those that hold it."""
        found: dict[str, Array] = {}
        for each in self.executors:
            flat = each.get(each.gradients)
            for slot in each.slots:
                value = flat[slot.offset : slot.offset + slot.size].reshape(slot.shape)
                found[slot.name] = found[slot.name] + value if slot.name in found else value.copy()
        return found

    def state(self) -> dict[str, Array]:
        return {name: value for each in self.executors for name, value in each.named_state().items()}


def chain(framework: str, network: Network, cut: Cutting, *, recompute: bool = False) -> Chain:
    make = piece_executor_by_name(framework)
    return Chain([make([piece], recompute=recompute) for piece in pieces(network, cut)])


def weights_of(batches: Sequence[dict[str, Array]]) -> list[float]:
    """Of each micro-batch in the mean over all samples."""
    sizes = [len(batch["labels"]) for batch in batches]
    return [size / sum(sizes) for size in sizes]


def divided(batch: dict[str, Array], *sizes: int) -> list[dict[str, Array]]:
    """The batch in micro-batches of these sizes."""
    ends = np.cumsum(sizes)
    return [
        {name: value[end - size : end] for name, value in batch.items()}
        for size, end in zip(sizes, ends, strict=True)
    ]
