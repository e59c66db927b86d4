"""Agreement of a pipeline's stages when it is formed: that they fit, and which tensors travel"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.distributed.communicators.communicator import Communicator
from d5ray.errors import ConfigurationError, nearest
from d5ray.kits.parallel.pipeline.tensor_encoding import TensorCodec
from d5ray.kits.parallel.stages.piece import Piece
from d5ray.networks.executors.inputs import open_sizes
from d5ray.networks.executors.labelled_network import LabelledNetwork
from d5ray.networks.executors.plan import needs_of
from d5ray.operators.tensors.tensor_descriptor import Dimension, TensorDescriptor

Shape = tuple[int, ...]


@final
@dataclass(frozen=True)
class NetworkEnds:
    """The names of the tensors at both ends of the whole network."""

    inputs: str
    scores: str
    labels: str
    loss: str

    @classmethod
    def of(cls, labelled: LabelledNetwork) -> "NetworkEnds":
        """The ends of a network with labels and a loss."""
        return cls(labelled.inputs, labelled.scores, labelled.labels, labelled.loss)


@final
@dataclass(frozen=True)
class Agreement:
    """Everything that all stages know.

    kinds     type and shape of the tensors that travel, of which all stages say the same
    outside   of what comes from outside
    makers    result of the whole network -> the stage that makes it
    labelled  tensors that are computed from labels, which an inference has not
    """

    kinds: Mapping[str, TensorDescriptor]
    outside: Mapping[str, TensorDescriptor]
    makers: Mapping[str, int]
    labelled: frozenset[str]

    def maker(self, result: str) -> int:
        """The stage that makes a tensor. Raises `ConfigurationError` if none does."""
        if result not in self.makers:
            raise ConfigurationError(
                f"no piece of the network makes {result!r}: {nearest(result, self.makers)}"
            )
        return self.makers[result]

    def sizes(self, given: Mapping[str, Shape]) -> dict[str, int]:
        """The open sizes, such as "batch", by the shapes of what comes from outside."""
        return open_sizes(self.outside, given)

    def kind(self, tensor: str, sizes: Mapping[str, int]) -> tuple[Shape, "np.dtype[Any]"] | None:
        """Shape and type of a tensor that travels; None where a header has to tell."""
        descriptor = self.kinds.get(tensor)
        if descriptor is None or descriptor.shape is None:
            return None
        shape = [sizes.get(axis, axis) if isinstance(axis, str) else axis for axis in descriptor.shape]
        if not all(isinstance(size, int) for size in shape):
            return None
        return tuple(size for size in shape if isinstance(size, int)), descriptor.dtype


def agree(
    communicator: Communicator,
    wire: TensorCodec,
    pieces: Sequence[Piece],
    same: Mapping[str, Any],
    labels: str,
) -> Agreement:
    """Compare what must be the same on all stages, and gather what each knows of its tensors.

    Raises `ConfigurationError` on all stages where they differ.
    """
    own = {"same": dict(same), **_told(pieces)}
    told = [json.loads(text) for text in _gathered(communicator, wire, json.dumps(own).encode())]
    for stage, theirs in enumerate(told):
        for what, value in theirs["same"].items():
            if value != told[0]["same"][what]:
                raise ConfigurationError(
                    f"the stages of a pipeline differ in {what}: stage 0 has {told[0]['same'][what]}, stage "
                    f"{stage} has {value}; give all stages the same"
                )
    _check_edges(told)
    spoken: dict[str, list[Any]] = {}
    outside: dict[str, TensorDescriptor] = {}
    makers: dict[str, int] = {}
    needs: dict[str, list[str]] = {}
    for stage, theirs in enumerate(told):
        for name, kind in theirs["tensors"].items():
            spoken.setdefault(name, []).append(kind)
        outside |= {name: _descriptor(kind) for name, kind in theirs["outside"].items()}
        makers |= dict.fromkeys(theirs["results"], stage)
        needs |= theirs["needs"]
    kinds = {name: _descriptor(said[0]) for name, said in spoken.items() if all(k == said[0] for k in said)}
    return Agreement(kinds, outside, makers, _depending(needs, labels))


def _told(pieces: Sequence[Piece]) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    outside: dict[str, Any] = {}
    needs: dict[str, Any] = {}
    for piece in pieces:
        network = piece.network
        known = {**network.inputs, **network.outputs}
        for name in (*piece.incoming, *piece.outgoing):
            if name in known:
                kind = _listed(known[name])
                tensors[name] = kind if tensors.get(name, kind) == kind else _listed(known[name], open=True)
        outside |= {name: _listed(network.inputs[name]) for name in piece.outside}
        needs |= {name: needs_of(network, [name]) for name in (*piece.outgoing, *piece.results)}
    results = [name for piece in pieces for name in piece.results]
    return {
        "tensors": tensors,
        "outside": outside,
        "needs": needs,
        "results": results,
        "reads": [(maker, each.index, name) for each in pieces for name, maker in each.incoming.items()],
        "gives": [
            (each.index, reader, name)
            for each in pieces
            for name, readers in each.outgoing.items()
            for reader in readers
        ],
    }


def _check_edges(told: Sequence[Mapping[str, Any]]) -> None:
    """Raise `ConfigurationError` unless what is read of a piece is what that piece gives."""
    read, given = ({tuple(edge) for theirs in told for edge in theirs[what]} for what in ("reads", "gives"))
    for maker, reader, name in sorted(read ^ given):
        told_by = reader if (maker, reader, name) in read else maker
        raise ConfigurationError(
            f"the stages of a pipeline are not of one cut: only piece {told_by} has it that {name!r} goes "
            f"from piece {maker} to piece {reader}; make the cut once, and give all stages pieces of it"
        )


def _listed(descriptor: TensorDescriptor, open: bool = False) -> list[Any]:
    shape = None if open or descriptor.shape is None else list(descriptor.shape)
    return [str(descriptor.dtype), shape]


def _descriptor(kind: list[Any]) -> TensorDescriptor:
    shape: list[Dimension] | None = kind[1]
    return TensorDescriptor(kind[0], shape)


def _depending(needs: Mapping[str, Sequence[str]], source: str) -> frozenset[str]:
    """The tensors that are computed from this one, piece after piece."""
    found: set[str] = set()
    grown = True
    while grown:
        more = {name for name, inputs in needs.items() if source in inputs or not found.isdisjoint(inputs)}
        grown = not more <= found
        found |= more
    return frozenset(found)


def _gathered(communicator: Communicator, wire: TensorCodec, text: bytes) -> list[bytes]:
    """Every stage's text, by stage."""
    lengths = np.zeros(communicator.size, np.int64)
    lengths[communicator.rank] = len(text)
    lengths = wire.all_gathered(communicator, lengths)
    texts = np.zeros((communicator.size, int(lengths.max())), np.uint8)
    texts[communicator.rank, : len(text)] = np.frombuffer(text, np.uint8)
    texts = wire.all_gathered(communicator, texts)
    return [row[:length].tobytes() for row, length in zip(texts, lengths.tolist(), strict=True)]
