"""Rows of a mesh's passes: the bubble, told by the first stage, and every stage's times and bytes sent"""

from collections.abc import Sequence
from typing import final

from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.model_parallelism import PassRecords
from d5ray.kits.parallel import metrics
from d5ray.kits.parallel.pipeline.executor import PipelineExecutor
from d5ray.metrics.record.recorder import Recorder

OF_A_REPLICA = (metrics.BubbleShare.name, metrics.BubbleFormula.name)
OF_A_STAGE = (
    metrics.StageComputeTime.name, metrics.StageSendTime.name, metrics.StageWaitTime.name,
    metrics.StageBytesSent.name, metrics.PartBytesSent.name,
)  # fmt: skip


@final
class PassFrames(PassRecords):
    """The frames of one agent's pipeline.

    within: the communicators of an agent's parts, then its stages; a list that is filled anew when it meets
    others.
    """

    def __init__(
        self, pipeline: PipelineExecutor, recorder: Recorder, within: Sequence[Communicator]
    ) -> None:
        self._pipeline, self._within = pipeline, within
        self._replicas = recorder.frame(OF_A_REPLICA, scope="replica")
        self._stages = recorder.frame(OF_A_STAGE, scope="stage")
        self._before = (0, 0)

    def begin(self) -> None:
        self._before = self._sent()

    def end(self, step: int, epoch: int, phase: str) -> None:
        pipeline, done = self._pipeline, self._pipeline.last_pass
        if done is None:
            return
        own, (stages, parts), before = done.stages[pipeline.stage], self._sent(), self._before
        sent = stages - before[0], parts - before[1]
        self._stages.append(step, epoch, phase, (own.compute, own.send, own.wait, *sent))
        if pipeline.stage == 0:
            formula = pipeline.schedule.bubble(pipeline.stages, done.micro_batches)
            self._replicas.append(step, epoch, phase, (done.bubble, formula))

    def _sent(self) -> tuple[int, int]:
        """The bytes sent so far to other stages, and to other parts."""
        *parts, stages = (each.traffic.bytes_sent for each in self._within)
        return stages, sum(parts)
