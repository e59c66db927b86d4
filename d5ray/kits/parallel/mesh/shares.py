"""Shares of a network for the agents of a mesh: divided into parts and cut into stages"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from d5ray.distributed.model_parallelism import NetworkShares, Parameters
from d5ray.errors import ConfigurationError
from d5ray.kits.parallel.mesh.shape import MeshShape
from d5ray.kits.parallel.pipeline.negotiation import NetworkEnds
from d5ray.kits.parallel.splitting.splitting import Splitting
from d5ray.kits.parallel.stages.balanced import Balanced
from d5ray.kits.parallel.stages.cut import Cutting
from d5ray.kits.parallel.stages.cutting import pieces
from d5ray.kits.parallel.stages.piece import Piece
from d5ray.networks.executors.labelled_network import LabelledNetwork
from d5ray.networks.network import Network

Array = np.ndarray[Any, Any]


@final
@dataclass(frozen=True)
class Share:
    """One agent's share: its pieces, in the order of its chunks, and the names at both ends of the whole."""

    pieces: tuple[Piece, ...]
    ends: NetworkEnds

    @property
    def parameters(self) -> int:
        """The number of parameters that the share holds."""
        return sum(value.size for piece in self.pieces for value in piece.network.parameters.values())


@final
class Shares(NetworkShares):
    """The shares of all stages and parts, by place; all replicas have the same.

    Raises `ConfigurationError` for a cut or a split that does not fit the network.
    """

    def __init__(self, mesh: MeshShape, whole: LabelledNetwork) -> None:
        self.mesh = mesh
        ends = NetworkEnds.of(whole)
        self._splitting = Splitting(whole.network, mesh.split, mesh.parts) if mesh.parts > 1 else None
        self._shares: dict[int, Share] = {}
        for part in range(mesh.parts):
            network = whole.network if self._splitting is None else self._splitting.part(part)
            for stage, own in enumerate(_stages(mesh, network)):
                self._shares[stage * mesh.parts + part] = Share(own, ends)

    def at(self, place: int) -> Share:
        return self._shares[place]

    def whole(
        self, parameters: Sequence[Parameters] | Mapping[int, Parameters], replica: int = 0
    ) -> Parameters:
        mesh = self.mesh
        first = replica * mesh.agents_per_replica
        parts = [
            {
                name: value
                for stage in range(mesh.stages)
                for name, value in parameters[first + stage * mesh.parts + part].items()
            }
            for part in range(mesh.parts)
        ]
        return parts[0] if self._splitting is None else self._splitting.joined(parts)

    def own(self, parameters: Mapping[str, Array], place: int) -> Parameters:
        """A place's part of these parameters of the whole network, each as much as it has of it."""
        names = {name for piece in self.at(place).pieces for name in piece.network.parameters}
        found = {name: value for name, value in parameters.items() if name in names}
        return found if self._splitting is None else self._splitting.divided(found, place % self.mesh.parts)


def _training(mesh: MeshShape, network: Network) -> Cutting:
    """The mesh's cut, balanced so that every piece has parameters; of several chunks one may do."""
    cutting = mesh.cutting
    if isinstance(cutting, Balanced):
        try:
            return replace(cutting, trains=True).cut(network)
        except ConfigurationError:
            if mesh.schedule.chunks == 1:
                raise
    return cutting


def _stages(mesh: MeshShape, network: Network) -> list[tuple[Piece, ...]]:
    """The pieces of every stage. Raises `ConfigurationError` where the cut does not fit the mesh."""
    cut = pieces(network, _training(mesh, network))
    if len(cut) != mesh.pieces:
        chunks = mesh.schedule.chunks
        each = "" if chunks == 1 else f" × {chunks} chunks of {mesh.schedule!r}"
        raise ConfigurationError(
            f"{mesh.cutting!r} makes {len(cut)} pieces of the network, the mesh has {mesh.stages} stages"
            f"{each}: name {mesh.pieces - 1} nodes with which further pieces begin, or leave cut out"
        )
    found = [cut[stage :: mesh.stages] for stage in range(mesh.stages)]
    for stage, own in enumerate(found):
        if not any(piece.network.parameters for piece in own):
            raise ConfigurationError(
                f"stage {stage} of the mesh has no parameters to train ({own[0]!r}): cut so that every stage "
                "has some"
            )
    return found
