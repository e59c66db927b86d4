"""Records of an agent about itself: its steps, its evaluations, its dealings with servers and peers"""

from collections import deque
from typing import Any, TypeVar, final

import numpy as np

from d5ray.distributed.network_cost import LinkCost
from d5ray.distributed.one_sided.peers import Peers
from d5ray.distributed.parameter_server.client import SERVER_METRICS, Server, summary
from d5ray.distributed.pipeline.executor import PipelineExecutor
from d5ray.experiment import Experiment
from d5ray.metrics.definitions.asynchrony import PROBED
from d5ray.metrics.definitions.pipelines import OF_A_REPLICA, OF_A_STAGE
from d5ray.metrics.record.recorder import Recorder, StepFrame

T = TypeVar("T")
NS = 1e-9
STEP_METRICS = {  # and what the agent's own numbers are multiplied with
    "loss": 1.0, "step_time": NS, "data_time": NS, "forward_time": NS, "backward_time": NS,
    "exchange_time": NS, "update_time": NS, "record_time": NS, "samples": 1.0, "samples_per_second": 1e9,
    "bytes_sent": 1.0, "bytes_received": 1.0, "messages_sent": 1.0,
}  # fmt: skip
PREDICTED = {"predicted_exchange_time": 1.0}
PEER_METRICS = ("window_wait_time", "letter_wait_time")
EVALUATION_METRICS = ("test_loss", "test_accuracy", "evaluation_time")
PROBE_STEPS = 20  # between two looks at how far the agents are apart
LINKS_NS = 2 * 10**9  # between two times that an agent tells what went over each of its links


@final
class AgentRecords:
    """The frames of one agent, and the events that are its schedule."""

    def __init__(self, recorder: Recorder, rank: int, experiment: Experiment) -> None:
        self._recorder, self._experiment = recorder, experiment
        self._replica = rank if experiment.mesh is None else experiment.mesh.seat(rank).replica
        self._evaluations = recorder.frame(EVALUATION_METRICS, scope="agent", level=3)
        self._server_steps = recorder.frame(SERVER_METRICS, scope="agent", level=3)
        self._peer_steps = recorder.frame(PEER_METRICS, scope="agent", level=3)
        self._replicas = recorder.frame(OF_A_REPLICA, scope="replica", level=3)
        self._stages = recorder.frame(OF_A_STAGE, scope="stage", level=3)
        self._probed: np.ndarray[Any, Any] | None = None

    def steps(self, network: LinkCost | None) -> StepFrame:
        """The frame of `STEP_METRICS`; with what is known of the network also of `PREDICTED`."""
        metrics = STEP_METRICS if network is None else STEP_METRICS | PREDICTED
        return self._recorder.frame(tuple(metrics), scope="agent", level=3, scales=tuple(metrics.values()))

    def evaluated(self, step: int, epoch: int, values: tuple[float, float | None, float]) -> None:
        """An evaluation after this step: the values of `EVALUATION_METRICS`."""
        self._evaluations.append(step, epoch, "test", values)

    def passed(
        self, step: int, epoch: int, phase: str, pipeline: PipelineExecutor, sent: tuple[int, int]
    ) -> None:
        """Record a pass over the stages: the bubble, told by the first, and this stage's times.

        sent: the bytes that went to other stages, and to other parts.
        """
        done = pipeline.last_pass
        if done is None:
            return
        own = done.stages[pipeline.stage]
        self._stages.append(step, epoch, phase, (own.compute, own.send, own.wait, *sent))
        if pipeline.stage == 0:
            formula = pipeline.schedule.bubble(pipeline.stages, done.micro_batches)
            self._replicas.append(step, epoch, phase, (done.bubble, formula))

    def operations(
        self, server: Server | None, peers: Peers | None, step: int, epoch: int | None, phase: str
    ) -> None:
        """Record this agent's operations at servers and peers: the run's schedule, and metrics."""
        event = self._recorder.event
        if server is not None and (done := _taken(server.operations)):
            for operation in done:
                event(
                    operation.kind,
                    step=step,
                    duration=operation.seconds,
                    at=operation.ended,
                    **operation.detail,
                )
            self._server_steps.append(step, epoch, phase, summary(done))
        if peers is not None and (met := _taken(peers.operations)):
            for meeting in met:
                event(meeting.kind, step=step, duration=meeting.seconds, at=meeting.ended, **meeting.detail)
            letters = sum(meeting.seconds for meeting in met if meeting.kind == "collect")
            windows = sum(meeting.seconds for meeting in met if meeting.kind not in ("collect", "post"))
            self._peer_steps.append(step, epoch, phase, (windows, letters))

    def links(self, server: Server | None, peers: Peers | None, step: int) -> None:
        """The bytes that went over each link so far: to and from whom."""
        links = {}
        resolved = self._experiment.resolved_servers
        if server is not None and resolved is not None:
            group = resolved.group_of(self._replica, self._experiment.replicas)
            links = {resolved.shard_name(shard, group): each for shard, each in enumerate(server.links)}
        if peers is not None:
            links |= {f"TrainingAgent(rank={rank})": each for rank, each in peers.links.items()}
        if links:
            self._recorder.event("links", step=step, bytes=links)

    def probed(self, step: int, parameters: Any) -> None:
        """Record the same few coordinates of every agent's parameters (n,)."""
        if self._probed is None:
            rng = np.random.default_rng([self._experiment.seed, 0xB0])
            self._probed = rng.choice(len(parameters), min(PROBED, len(parameters)), replace=False)
        self._recorder.event("probe", step=step, values=[float(parameters[int(at)]) for at in self._probed])


def _taken(operations: deque[T]) -> list[T]:
    """The operations that were there; another thread may append to them meanwhile."""
    return [operations.popleft() for _ in range(len(operations))]
