"""The shape of a mesh: replicas × stages × parts, which agent is where, and in which groups"""

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from d5ray.checks import MOST_RANKS, KnownKeywords, check_count, check_kind
from d5ray.distributed.group.group import Group
from d5ray.distributed.model_parallelism import ModelParallelism
from d5ray.errors import ConfigurationError
from d5ray.kits.parallel.pipeline.schedule import PipelineSchedule
from d5ray.kits.parallel.pipeline.schedules import OneFOneB
from d5ray.kits.parallel.splitting.splitting import Plan
from d5ray.kits.parallel.stages.balanced import Balanced
from d5ray.kits.parallel.stages.cut import Cutting

MOST_PASSES = 1_000_000  # of micro-batches through stages, whose order is laid down before anything starts


@final
@dataclass(frozen=True)
class Seat:
    """The place of an agent in a mesh, each counted from 0."""

    replica: int
    stage: int
    part: int

    def __str__(self) -> str:
        return f"replica {self.replica}, stage {self.stage}" + (f", part {self.part}" if self.part else "")


@dataclass(frozen=True)
class MeshShape(KnownKeywords, ModelParallelism, ABC):
    """The values of a `Mesh`, and the places of its agents."""

    replicas: int = 1
    stages: int = 1
    parts: int = 1
    cut: Cutting | None = None
    schedule: PipelineSchedule = field(default_factory=OneFOneB)
    micro_batches: int = 4
    recompute: bool = False
    split: Plan = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("replicas", "stages", "parts", "micro_batches"):
            check_count(name, getattr(self, name), 1)
        check_count("replicas × stages × parts", self.agents, high=MOST_RANKS)
        check_count("stages × micro_batches", self.stages * self.micro_batches, high=MOST_PASSES)
        for name, kind, wanted in (
            ("cut", Cutting | None, "a Cut such as Cut(('conv2',)), or Balanced(2)"),
            ("schedule", PipelineSchedule, "a PipelineSchedule such as OneFOneB()"),
            ("recompute", bool, "True or False"),
        ):
            check_kind(name, getattr(self, name), kind, wanted)
        if not isinstance(self.split, Mapping) and not hasattr(self.split, "plan"):
            raise ConfigurationError(
                f"split is {self.split!r}: it must be a dictionary from names of nodes to how they are "
                "divided, such as {'fc1': ByColumns()}, or a plan such as TransformerSplit()"
            )
        if isinstance(self.split, Mapping):
            object.__setattr__(self, "split", dict(self.split))
        if self.split and self.parts == 1:
            raise ConfigurationError(
                f"split is {self.split!r}, but a mesh of one part divides no operator: set parts=2 or more"
            )
        if self.parts > 1 and not self.split:
            raise ConfigurationError(
                f"the mesh has {self.parts} parts, and split names no operator that they divide: name one, "
                "such as split={'fc1': ByColumns()}, or set parts=1"
            )
        self.schedule.actions(self.stages, self.micro_batches)

    @property
    def agents_per_replica(self) -> int:
        return self.stages * self.parts

    @property
    def pieces(self) -> int:
        """The number of pieces into which the network is cut: the schedule's chunks for every stage."""
        return self.stages * self.schedule.chunks

    @property
    def cutting(self) -> Cutting:
        """The cut of the network into stages."""
        return Balanced(self.pieces) if self.cut is None else self.cut

    def seat(self, rank: int) -> Seat:
        """The place of an agent."""
        replica, place = divmod(rank, self.stages * self.parts)
        return Seat(replica, *divmod(place, self.parts))

    def rank(self, seat: Seat) -> int:
        """The agent at a place."""
        return (seat.replica * self.stages + seat.stage) * self.parts + seat.part

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """The agents that compute the stages of this one's replica and part, in the stages' order."""
        own = self.seat(rank)
        return tuple(self.rank(Seat(own.replica, stage, own.part)) for stage in range(self.stages))

    def parts_of(self, rank: int) -> tuple[int, ...]:
        """The agents that compute the parts of this one's stage, in the parts' order."""
        own = self.seat(rank)
        return tuple(self.rank(Seat(own.replica, own.stage, part)) for part in range(self.parts))

    def replicas_of(self, rank: int) -> tuple[int, ...]:
        """The agents that hold the same parameters as this one, in the replicas' order."""
        own = self.seat(rank)
        return tuple(self.rank(Seat(replica, own.stage, own.part)) for replica in range(self.replicas))

    def check_agents(self, agents: int) -> None:
        if agents != self.agents:
            raise ConfigurationError(
                f"a mesh of {self.replicas} replicas × {self.stages} stages × {self.parts} parts has "
                f"{self.agents} agents, the experiment has {agents}: set agents={self.agents}, or a mesh "
                f"that multiplies to {agents}"
            )

    def name_of(self, place: int) -> str:
        stage, part = divmod(place, self.parts)
        return f"stage {stage}" + (f" part {part}" if self.parts > 1 else "")

    def groups(self, group: Group) -> tuple[Group, Group, Group]:
        return self.same_stage(group), self.same_replica(group), self.same_place(group)

    def same_replica(self, group: Group) -> Group:
        """The group of the agents that compute the stages of this one's replica and part."""
        own = self.seat(group.rank)
        return group.among(self.stages_of(group.rank), f"{group.name}/replica {own.replica} part {own.part}")

    def same_stage(self, group: Group) -> Group:
        """The group of the agents that compute the parts of this one's stage."""
        own = self.seat(group.rank)
        return group.among(self.parts_of(group.rank), f"{group.name}/replica {own.replica} stage {own.stage}")
