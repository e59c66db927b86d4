"""Mesh: the layout of agents for data, pipeline and tensor parallelism: replicas × stages × parts"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.group.group import Group
from d5ray.errors import ConfigurationError
from d5ray.frameworks import framework_name
from d5ray.kits.parallel.executors import check_pieces
from d5ray.kits.parallel.mesh.checks import check_shared, check_staged
from d5ray.kits.parallel.mesh.pass_frames import PassFrames
from d5ray.kits.parallel.mesh.shape import MeshShape
from d5ray.kits.parallel.mesh.shares import Share, Shares
from d5ray.kits.parallel.pipeline.executor import PipelineExecutor
from d5ray.kits.parallel.stages.piece_executor import PieceExecutor
from d5ray.metrics.record.recorder import Recorder
from d5ray.networks.executors.executor import Executor
from d5ray.networks.executors.labelled_network import LabelledNetwork
from d5ray.operators.collectives import Collectives
from d5ray.operators.loss import Loss


@final
@dataclass(frozen=True)
class Mesh(MeshShape):
    """replicas × stages × parts agents; each holds the parameters of one part of one stage of one replica.

    replicas       of the network, which divide every step's samples (data parallelism). Agents that hold the
                   same parameters, one per replica, train by the experiment's distributed optimizer, over its
                   topology, like agents that hold the whole network
    stages         of each replica; they pass on activations and their gradients (pipeline parallelism,
                   arXiv:1811.06965)
    cut            the cut into stages: `Cut(("conv2",))`, `Balanced(2)`; by default balanced by operations
    schedule       the order in which the stages compute the micro-batches
    micro_batches  the number of micro-batches of a replica's batch
    recompute      activation checkpointing: whether a stage keeps only the inputs of a micro-batch, and
                   recomputes the rest in the backward pass (arXiv:1604.06174)
    parts          of divided operators (tensor parallelism, arXiv:1909.08053)
    split          the divided operators: `{"fc1": ByColumns(), "fc2": ByRows()}`, or `TransformerSplit()`;
                   all others are computed in all parts

    Agents are numbered by replica, then stage, then part. Normalization and Dropout apply per micro-batch: a
    step equals that of one agent per replica with the same micro-batches. Wrong values raise
    `ConfigurationError`.
    """

    def check(self, experiment: Any) -> None:
        check_pieces(framework_name(experiment.make_executor))
        check_staged(self, accumulate=experiment.accumulate, **experiment.executor_options.options)
        check_shared(
            self,
            experiment.distributed_optimizer,
            experiment.faults.on_failure,
            experiment.events,
            late=experiment.elastic.late,
            slow=experiment.slow,
        )

    def shares(self, network: LabelledNetwork) -> Shares:
        return Shares(self, network)

    def executor(
        self, share: Share, make: Callable[..., Executor], loss: Loss, options: Mapping[str, Any]
    ) -> PipelineExecutor:
        module = sys.modules[make.__module__]
        make_piece: Callable[..., PieceExecutor] | None = getattr(module, "from_pieces", None)
        if make_piece is None:
            raise ConfigurationError(
                "a mesh needs an executor that computes pieces of a network, and "
                f"{module.__name__} has no from_pieces: set executor='torch' or another framework's name"
            )
        return self.stage_of(share, make_piece, loss, options)

    def stage_of(
        self, share: Share, make: Callable[..., PieceExecutor], loss: Loss, options: Mapping[str, Any]
    ) -> PipelineExecutor:
        """The executor of a share; make: `from_pieces` of a framework; options: its device, threads."""
        collectives = Collectives() if self.parts > 1 else None
        executor = make(share.pieces, recompute=self.recompute, collectives=collectives, **options)
        return PipelineExecutor(executor, None, self.schedule, self.micro_batches, share.ends, loss)

    def meet(self, executor: Executor, group: Group, join: Callable[[Group], Communicator]) -> None:
        """First the parts of this stage meet, then the stages."""
        assert isinstance(executor, PipelineExecutor)
        if (collectives := executor.executor.collectives) is not None:
            collectives.communicator = join(self.same_stage(group))
        executor.join(join(self.same_replica(group)))

    def leave(self, executor: Executor) -> None:
        assert isinstance(executor, PipelineExecutor)
        executor.close()

    def records(self, executor: Executor, recorder: Recorder, within: Sequence[Communicator]) -> PassFrames:
        assert isinstance(executor, PipelineExecutor)
        return PassFrames(executor, recorder, within)
