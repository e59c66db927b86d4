"""Records of an agent about itself, its evaluations, dealings with servers and peers, and where they go"""

import json
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, final

import numpy as np

from d5ray.agent.connections import Connections
from d5ray.distributed.group.waits import PresentWait
from d5ray.distributed.model_parallelism import PassRecords
from d5ray.distributed.network_cost import LinkCost
from d5ray.distributed.one_sided.peers import PeerOperation
from d5ray.distributed.parameter_server.client import SERVER_METRICS, ServerOperation, summary
from d5ray.distributed.scheduler import Scheduler
from d5ray.experiment import Experiment
from d5ray.metrics.definitions.asynchrony import PROBED
from d5ray.metrics.exports.exported_rows import Readings
from d5ray.metrics.record.recorder import Recorder, Send, StepFrame
from d5ray.metrics.record.schema import table_of

T = TypeVar("T")
NS = 1e-9
STEP_METRICS = {  # and what the agent's own numbers are multiplied with
    "loss": 1.0, "step_time": NS, "data_time": NS, "forward_time": NS, "backward_time": NS,
    "exchange_time": NS, "update_time": NS, "record_time": NS, "samples": 1.0, "samples_per_second": 1e9,
    "bytes_sent": 1.0, "bytes_received": 1.0, "messages_sent": 1.0,
}  # fmt: skip
PREDICTED = {"predicted_exchange_time": 1.0}
PEER_METRICS = ("window_wait_time", "letter_wait_time")
VALIDATION_METRICS = ("validation_loss", "validation_accuracy", "evaluation_time")
EVALUATION_METRICS = ("test_loss", "test_accuracy", "evaluation_time")


class Sink(Protocol):
    """The place where an agent's rows go."""

    def samples(self, batch: Any) -> None:
        """Take a batch of rows of the table `metrics`."""

    def frames(self, batch: Any) -> None:
        """Rows of a frame in their compact form, see `d5ray.metrics.record.columns.expand`."""

    def events(self, batch: Any) -> None:
        """Take a batch of rows of the table `events`."""

    def file(self, name: str, data: bytes) -> None:
        """A file in the run's folder."""

    def drain(self) -> None:
        """Return when everything sent has been acknowledged."""


class RowExporter(Protocol):
    """The way of an agent's rows and readings to a monitoring system."""

    def watched(self, send: Send) -> Send:
        """A wrapper of `send`, the batches of which are exported too."""

    def start(self, read: Callable[[], Readings] | None = None) -> None:
        """Begin. read: the agent's readings; called from another thread."""


@final
class AgentRecords:
    """The recorder of one agent, its frames, and the events that are its schedule.

    sink     where they go, and the files of events
    now      the clock in ns by which they are timed; epoch: when it was at 0, in ns of Unix time
    steps    the frame of its steps; None before the agent has joined the others
    passes   the records of its share's passes, in a mesh
    network  what is known of the network between the agents, by which exchanges are predicted
    """

    def __init__(
        self,
        experiment: Experiment,
        rank: int,
        run_id: str,
        node: str,
        attempt: int,
        sink: Sink,
        exporter: RowExporter | None,
        scheduler: Scheduler,
        epoch: int,
    ) -> None:
        samples: Send = sink.samples
        frames: Send = sink.frames
        if exporter is not None:
            samples, frames = exporter.watched(samples), exporter.watched(frames)
        self.sink, self.now = sink, scheduler.now
        self.recorder = recorder = Recorder(
            run_id=run_id,
            agent=f"TrainingAgent(rank={rank})",
            rank=rank,
            node=node,
            send=samples,
            send_events=sink.events,
            send_frames=frames,
            attempt=attempt,
            now=self.now,
            wall_minus_mono=epoch,
        )
        self._experiment, self._epoch = experiment, epoch
        self._origin = {"run_id": run_id, "agent": f"TrainingAgent(rank={rank})", "rank": rank}
        self.steps: StepFrame | None = None
        self.network: LinkCost | None = None
        self._evaluations = {"test": recorder.frame(EVALUATION_METRICS)}  # by split
        self._server_steps = recorder.frame(SERVER_METRICS)
        self._peer_steps = recorder.frame(PEER_METRICS)
        self.passes: PassRecords | None = None
        self._probed: np.ndarray[Any, Any] | None = None
        self._delivers = False  # waits for the aggregator

    def begin_steps(self, network: LinkCost | None) -> None:
        """Make the frame of `STEP_METRICS`, once; with what is known of the network also of `PREDICTED`."""
        if self.steps is not None:
            return
        metrics = STEP_METRICS if network is None else STEP_METRICS | PREDICTED
        self.network = network
        self.steps = self.recorder.frame(tuple(metrics), scales=tuple(metrics.values()))

    def deliver(self) -> None:
        """Return when everything recorded so far has been acknowledged."""
        self._delivers = True
        self.recorder.flush()
        self.sink.drain()
        self._delivers = False

    def waits(self) -> list[PresentWait]:
        """The wait for the aggregator to store the rows, if there is one now; called from another thread.

        An agent is not to blame for a disk that is full.
        """
        return [PresentWait("its last rows", whom="the aggregator")] if self._delivers else []

    def tell(self, name: str, step: int, **detail: object) -> None:
        """Send an event now, ahead of what is recorded, and return when it was acknowledged."""
        now = self.now()
        row = self._origin | {
            "name": name, "step": step, "t_wall": now + self._epoch, "t_mono": now,
            "detail": json.dumps(detail, sort_keys=True),
        }  # fmt: skip
        self.sink.events(table_of("events", [row]).combine_chunks().to_batches()[0])
        self.sink.drain()

    def evaluated(
        self, step: int, epoch: int, values: tuple[float, float | None, float], split: str = "test"
    ) -> None:
        """An evaluation after this step: the values of `EVALUATION_METRICS`, or `VALIDATION_METRICS`."""
        if split not in self._evaluations:
            self._evaluations[split] = self.recorder.frame(VALIDATION_METRICS)
        self._evaluations[split].append(step, epoch, split, values)

    def operations(
        self, connections: Connections, step: int, epoch: int | None = None, phase: str = "run"
    ) -> None:
        """Record this agent's operations at servers and peers: the run's schedule, and metrics."""
        server, peers = connections.server, connections.peers
        if server is not None and (done := _taken(server.operations)):
            self._schedule(done, step)
            self._server_steps.append(step, epoch, phase, summary(done))
        if peers is not None and (met := _taken(peers.operations)):
            self._schedule(met, step)
            messages = sum(meeting.seconds for meeting in met if meeting.kind == "collect")
            windows = sum(meeting.seconds for meeting in met if meeting.kind not in ("collect", "post"))
            self._peer_steps.append(step, epoch, phase, (windows, messages))

    def _schedule(self, operations: Sequence[ServerOperation | PeerOperation], step: int) -> None:
        for each in operations:
            self.recorder.event(each.kind, step=step, duration=each.seconds, at=each.ended, **each.detail)

    def links(self, connections: Connections, step: int) -> None:
        """The bytes that went over each link so far: to and from whom."""
        server, peers, links = connections.server, connections.peers, {}
        resolved, replicas = self._experiment.resolved_servers, self._experiment.replicas
        if server is not None and resolved is not None:
            group = resolved.group_of(connections.replica, replicas)
            links = {resolved.shard_name(shard, group): each for shard, each in enumerate(server.links)}
        if peers is not None:
            links |= {f"TrainingAgent(rank={rank})": each for rank, each in peers.links.items()}
        if links:
            self.recorder.event("links", step=step, bytes=links)

    def probed(self, step: int, parameters: Any) -> None:
        """Record the same few coordinates of every agent's parameters (n,)."""
        if self._probed is None:
            rng = np.random.default_rng([self._experiment.seed, 0xB0])
            self._probed = rng.choice(len(parameters), min(PROBED, len(parameters)), replace=False)
        self.recorder.event("probe", step=step, values=[float(parameters[int(at)]) for at in self._probed])


def _taken(operations: deque[T]) -> list[T]:
    """The operations that were there; another thread may append to them meanwhile."""
    return [operations.popleft() for _ in range(len(operations))]
