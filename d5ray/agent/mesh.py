"""An agent's place in a mesh: the executor of its stage, and the groups that it belongs to"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.group.group import Group
from d5ray.distributed.mesh.assignments import Share, Shares
from d5ray.distributed.mesh.mesh import Mesh, Seat
from d5ray.distributed.pipeline.executor import PipelineExecutor
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.frameworks.initial_values import trainable_network
from d5ray.networks.stages.piece_executor import PieceExecutor
from d5ray.operators.collectives import Collectives
from d5ray.operators.loss import Loss
from d5ray.training.datasets import Dataset
from d5ray.training.transformations import shape_after


def shares_of(experiment: Experiment, dataset: Dataset) -> Shares:
    """The shares of its network that the agents of a mesh get."""
    assert experiment.mesh is not None
    whole = trainable_network(
        experiment.model,
        dict(experiment.model_kwargs),
        shape_after(experiment.pipeline, dataset.sample_shape),
        len(dataset.classes),
        experiment.loss,
        seed=experiment.seed,
    )
    return Shares(experiment.mesh, whole)


def seat_of(experiment: Experiment, rank: int) -> Seat:
    """The place of an agent; without a mesh each is a replica."""
    return Seat(rank, 0, 0) if experiment.mesh is None else experiment.mesh.seat(rank)


def staged(experiment: Experiment, share: Share) -> PipelineExecutor:
    """The executor of an agent's stage, which computes when it has met the others."""
    assert experiment.mesh is not None
    module = sys.modules[experiment.make_executor.__module__]
    make: Callable[..., PieceExecutor] | None = getattr(module, "from_pieces", None)
    if make is None:
        raise ConfigurationError(
            f"a mesh needs an executor that computes pieces of a network, and {module.__name__} has no "
            "from_pieces: set executor='torch' or another framework's name"
        )
    options = {"threads": experiment.threads} | experiment.executor_arguments
    return stage_of(share, experiment.mesh, experiment.loss, make, options)


def stage_of(
    share: Share, mesh: Mesh, loss: Loss, make: Callable[..., PieceExecutor], options: Mapping[str, Any]
) -> PipelineExecutor:
    """The executor of one stage; make, options: `from_pieces` of a framework, and what it is told beside."""
    collectives = Collectives() if mesh.parts > 1 else None
    executor = make(share.pieces, recompute=mesh.recompute, collectives=collectives, **options)
    return PipelineExecutor(executor, None, mesh.schedule, mesh.micro_batches, share.ends, loss)


def meet(stage: PipelineExecutor, mesh: Mesh, group: Group, join: Callable[[Group], Communicator]) -> None:
    """Meet those that compute the rest of the network: first the parts of this stage, then the other stages.

    group: of all agents; join: gives the communicator with some of them.
    """
    if (collectives := stage.executor.collectives) is not None:
        collectives.communicator = join(parts(mesh, group))
    stage.join(join(stages(mesh, group)))


def left(mesh: Mesh, group: Group) -> Mesh:
    """The mesh of those of its replicas whose agents are this group."""
    return replace(mesh, replicas=group.size // (mesh.stages * mesh.parts))


def groups_of(mesh: Mesh, group: Group) -> tuple[Group, Group, Group]:
    """All groups in which an agent meets others: of its stage's parts, of the stages, of the replicas."""
    return parts(mesh, group), stages(mesh, group), replicas(mesh, group)


def stages(mesh: Mesh, group: Group) -> Group:
    """The group of the agents that compute the stages of this one's replica; group: of all agents."""
    own = mesh.seat(group.rank)
    return group.among(mesh.stages_of(group.rank), f"{group.name}/replica {own.replica} part {own.part}")


def parts(mesh: Mesh, group: Group) -> Group:
    """The group of the agents that compute the parts of this one's stage."""
    own = mesh.seat(group.rank)
    return group.among(mesh.parts_of(group.rank), f"{group.name}/replica {own.replica} stage {own.stage}")


def replicas(mesh: Mesh, group: Group) -> Group:
    """The group of the agents that hold the same parameters as this one."""
    own = mesh.seat(group.rank)
    return group.among(mesh.replicas_of(group.rank), f"{group.name}/stage {own.stage} part {own.part}")
