"""Piece: the part of a network that one stage computes, and what goes in and out of it"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.networks.graph.graph import Array
from d5ray.networks.graph.tensors import is_floating
from d5ray.networks.network import Network

MOST_NAMES = 4  # that a line about a piece lists


@final
@dataclass(frozen=True, repr=False, eq=False)
class Piece:
    """One stage of a cut; see `pieces`.

    network         its nodes, under the names that they have in the whole. Its inputs are what comes from
                    outside and what earlier pieces make, its outputs what later pieces read and what the
                    whole gives. Parameters, constants and state are those that its nodes read.
    index, count    which of how many pieces, counted from 0
    incoming        tensor -> the piece that makes it; always an earlier one
    outgoing        tensor -> the pieces that read it, in their order; always later ones. A tensor goes from
                    its maker to each reader directly, also where that skips pieces.
    results         the outputs of the whole network that this piece makes
    tied            parameter -> all pieces that hold it, this one among them, for those that several hold:
                    its gradient is the sum of theirs
    differentiated  of the tensors in `incoming` and `outgoing` those whose gradients travel back: of a
                    floating-point type, and computed from a parameter
    """

    network: Network
    index: int
    count: int
    incoming: Mapping[str, int]
    outgoing: Mapping[str, tuple[int, ...]]
    results: tuple[str, ...]
    tied: Mapping[str, tuple[int, ...]]
    differentiated: frozenset[str]

    @property
    def outside(self) -> tuple[str, ...]:
        """The inputs that come from outside the network, such as samples and labels."""
        return tuple(name for name in self.network.inputs if name not in self.incoming)

    @property
    def is_last(self) -> bool:
        """True for the last of the network's pieces, the one that gives the loss."""
        return self.index == self.count - 1

    def __repr__(self) -> str:
        nodes = self.network.nodes
        own = sum(value.size for value in self.network.parameters.values())
        parts = [
            f"{len(nodes)} nodes from {nodes[0].name!r} to {nodes[-1].name!r}",
            f"{own:,} parameters",
            *(f"reads {_listed(names)} of {maker}" for maker, names in self._by_maker().items()),
            *(f"gives {_listed(names)} to {reader}" for reader, names in self._by_reader().items()),
        ]
        return f"Piece({self.index} of 0–{self.count - 1}: {'; '.join(parts)})"

    def _by_maker(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for name, maker in self.incoming.items():
            found.setdefault(maker, []).append(name)
        return found

    def _by_reader(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for name, readers in self.outgoing.items():
            for reader in readers:
                found.setdefault(reader, []).append(name)
        return found


def parameters_of(pieces: Sequence[Piece]) -> dict[str, Array]:
    """The parameters that pieces hold together, each once."""
    return {name: value for piece in pieces for name, value in piece.network.parameters.items()}


def state_of(pieces: Sequence[Piece]) -> dict[str, Array]:
    """The state that pieces hold together."""
    return {name: value for piece in pieces for name, value in piece.network.state_values.items()}


def element_type_of(pieces: Sequence[Piece]) -> "np.dtype[Any]":
    """The element type of the parameters; without any, of what is computed with."""
    for piece in pieces:
        network = piece.network
        for kind in (
            *(value.dtype for value in network.parameters.values()),
            *(known.dtype for known in (*network.inputs.values(), *network.outputs.values())),
        ):
            if is_floating(kind):
                found: np.dtype[Any] = kind
                return found
    return np.dtype("float32")


def _listed(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:MOST_NAMES]))
    return shown if len(names) <= MOST_NAMES else f"{shown} and {len(names) - MOST_NAMES} more"
