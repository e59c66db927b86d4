"""One agent of a data-parallel training: a plain class, of which `launch` makes an actor of Ray"""

import copy
import hashlib
import platform
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from d5ray.agent.building import BuiltSizes, executor_of, load_framework, sizes_of
from d5ray.agent.connections import Connections, LateEntry
from d5ray.agent.data import AgentData
from d5ray.agent.events import AgentEvents
from d5ray.agent.faults import AgentFaults
from d5ray.agent.loop import Progress, TrainingLoop
from d5ray.agent.model_facts import described
from d5ray.agent.outcome import Outcome
from d5ray.agent.records import AgentRecords, RowExporter, Sink
from d5ray.agent.user_errors import blaming
from d5ray.agent.vitals import Vitals, WorkClock
from d5ray.distributed.checkpoints.named_tensors import buffer_arrays
from d5ray.distributed.checkpoints.rollback import RestartPoint
from d5ray.distributed.faults.fault import Fault
from d5ray.distributed.group.group import Group
from d5ray.distributed.network_cost import LinkCost
from d5ray.distributed.one_sided.remote_peers import RemotePeers
from d5ray.distributed.rpc.service import Address
from d5ray.distributed.topologies.topology import Topology
from d5ray.distributed.world import Directory, RealWorld, World
from d5ray.errors import D5Error
from d5ray.experiment import Experiment
from d5ray.frameworks.host import device_name, gpu_uuid
from d5ray.metrics.exports.exported_metrics import TRAINING
from d5ray.metrics.exports.exported_rows import Readings
from d5ray.metrics.record.model_state import ModelState
from d5ray.metrics.record.run_clock import RunClock
from d5ray.training.arrays import use_device_of
from d5ray.training.batches.epochs import START, Epochs, Position
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.samplers.shards import Sharing

Given = ParamSpec("Given")
Found = TypeVar("Found")


def on_its_device(
    method: Callable[Concatenate["TrainingAgent", Given], Found],
) -> Callable[Concatenate["TrainingAgent", Given], Found]:
    """The method with the parameters' GPU as the current one of its thread, which may be any."""

    @wraps(method)
    def call(self: "TrainingAgent", /, *arguments: Given.args, **options: Given.kwargs) -> Found:
        use_device_of(self.executor.parameters)
        return method(self, *arguments, **options)

    return call


class TrainingAgent:
    """The life of an agent: prepare, build, join, then train as often as wanted, then leave."""

    def __init__(
        self,
        rank: int,
        experiment: Experiment,
        run_id: str,
        node: str | None,
        sink: Sink,
        world: World | None = None,
        attempt: int = 0,
        folder: str | None = None,
        exporter: RowExporter | None = None,
        faults: AgentFaults | None = None,
        clock: RunClock | None = None,
    ) -> None:
        # node: by default the name of the machine this runs on; world: by default the real one; attempt: how
        # often an agent with this rank was started before; folder: the run's; faults: what it does by plan;
        # clock: the run's, by default that of the world
        self.rank, self.experiment, self.run_id, self.exporter = rank, experiment, run_id, exporter
        self._folder, self._world, node = folder, world or RealWorld(), node or platform.node()
        self._faults = faults
        scheduler = self._world.scheduler
        epoch = scheduler.epoch() if clock is None else clock.wall_minus_mono
        self.records = AgentRecords(experiment, rank, run_id, node, attempt, sink, exporter, scheduler, epoch)
        self._called = self._trains = self._built = False
        self._clock = WorkClock()
        if exporter is not None:
            exporter.start(self.readings)

    def __repr__(self) -> str:
        return f"TrainingAgent(rank={self.rank})"

    # -- setting up ------------------------------------------------------------------------------------

    def prepare(self) -> float:
        """Import the framework; returns the seconds it took."""
        return load_framework(self.experiment)

    def build(self, dataset: Dataset, share: Any = None) -> BuiltSizes:
        """Make the executor and this agent's share of the data. share: of the network, in a mesh."""
        experiment, rank, world, records = self.experiment, self.rank, self._world, self.records
        with blaming(repr(self), "while it built the model"):
            self.executor = executor_of(experiment, dataset, rank, share, world)
        if uuid := gpu_uuid(self.executor.parameters):
            records.recorder.event("device", device=device_name(self.executor.parameters), uuid=uuid)
        index = rank // experiment.agents_per_replica
        self.data = data = AgentData(experiment, dataset, index, threads=world.has_threads)
        self.connections = connections = Connections(experiment, rank, self.executor, data, world)
        if experiment.mesh is not None:
            records.passes = experiment.mesh.records(self.executor, records.recorder, connections.within)
        self.events = AgentEvents(experiment, rank, connections, data, records, self.run_id, self._folder)
        if self._faults is not None:
            self._faults.arm(self.events.hooks, records)
        self._loop = TrainingLoop(experiment, world.scheduler, connections, data, self.events, records)
        self._built = True
        for note in self.executor.notes:
            records.recorder.event("model_changed", note=note)
        return sizes_of(experiment, self.executor, data.epochs)

    @on_its_device
    def join(
        self, group: Group, networks: Mapping[str, LinkCost] | None = None, directory: Directory | None = None
    ) -> str:
        """See `Connections.join`. networks: between these hosts by backend, to predict exchanges by."""
        backend = self.connections.join(group, directory)
        self.connections.commit(0)
        self.records.begin_steps((networks or {}).get(backend))
        return backend

    @on_its_device
    def take_first(self, group: Group, topology: Topology) -> str:
        """Take the parameters of the first agent of those that are there; returns the backend's name."""
        return self.connections.take_first(group, topology)

    @on_its_device
    def join_late(self, entry: LateEntry) -> None:
        """See `Connections.join_late`."""
        self.connections.join_late(entry)
        self.records.begin_steps(None)
        self._loop.begin_at(entry.step, self.data.shards.agents, self.connections.replica)
        self.records.recorder.event("joined", step=entry.step)

    @on_its_device
    def rejoin(self, group: Group, topology: Topology, sharing: Sharing | None = None) -> RestartPoint:
        """See `Connections.rejoin`. Samples of a step that nobody has completed are drawn again, by all.

        sharing: of the samples; by default as it was, or among the members where orphans are taken over.
        """
        if sharing is None:
            as_was = Sharing(self.data.shards.agents, self.connections.replica)
            among = self.connections.replicas_in(group)
            taken_over = self.experiment.faults.orphans == "taken_over"
            sharing = Sharing(among.size, among.rank) if taken_over else as_was
        agreed = self.connections.rejoin(group, topology, sharing)
        self._loop.stand_at(agreed.step)
        self.records.begin_steps(None)
        self.records.recorder.event("agreed", step=agreed.step, group=group.epoch, sha256=agreed.sha256)
        if group.rank == 0:
            for metric, value, unit in (
                ("agents", group.size, "agents"),
                ("global_batch", agreed.global_batch, "samples"),
                ("rate_factor", agreed.rate_factor, "1"),
            ):
                self.records.recorder.declare(metric, unit)
                self.records.recorder.record(
                    metric, value, step=agreed.step, epoch=agreed.place.epoch, phase="train"
                )
        return agreed

    @on_its_device
    def begin_again(
        self,
        group: Group,
        given: tuple[tuple[str, int] | None, Topology | None],
        sharing: Sharing | None = None,
    ) -> RestartPoint:
        """Form a new group although no agent holds the complete state, and resume from a checkpoint.

        given: path and step of the checkpoint, or None if all agents have just been started; and the
        topology of the existing agents, by default that of all. sharing: of the samples, by default among
        all.
        """
        (checkpoint, topology), connections = given, self.connections
        sharing = sharing or Sharing(self.experiment.replicas, connections.replica)
        connections.leave()
        self.data.share_from(START, sharing)
        connections.join(group, None, topology)
        connections.commit(0)
        self.records.begin_steps(None)
        if checkpoint is not None:
            self.resume(*checkpoint)
            self.data.share_from(self.data.epochs.at(checkpoint[1]), sharing)
        agreed = connections.begun_at(self._loop.progress.step)
        self.records.recorder.event("agreed", step=agreed.step, group=group.epoch, sha256=agreed.sha256)
        return agreed

    @on_its_device
    def resume(self, path: str, step: int) -> Epochs:
        """Go on from this checkpoint, when the agents have joined each other; the epochs from there on."""
        with blaming(repr(self), "while it took over its checkpoint"):
            saved = self.events.resume(path, step)
        self._loop.resume(saved, self.connections.replica)
        self.connections.begin_at(saved.step)
        return self.data.epochs

    @on_its_device
    def train(self, steps: int, until: Position | None = None) -> Outcome:
        """Do `steps` further steps; evaluates where an epoch ends, and at the end. Never raises.

        until: the place in the data that they lead to, where it counts and not their number.
        An agent that cannot go on leaves its group, so that its peers do not wait for it.
        """
        recorder, step = self.records.recorder, self._loop.progress.step
        if self._called or self.connections.optimizer.asynchronous:
            recorder.event("train", step=step, steps=steps)
        self._called = self._trains = True
        self._clock.start()
        outcome = self._loop.train(steps, until)
        if not outcome.completed:
            recorder.event(outcome.status, step=outcome.step, reason=outcome.reason)
            if outcome.status != "paused":  # its peers may still read what it sent last
                self.leave()
        self._trains = False
        self.records.links(self.connections, self._loop.progress.step)
        try:
            self.records.deliver()
        except D5Error as error:
            return Outcome("failed", self._loop.progress.step, str(error))
        return outcome

    @on_its_device
    def idle(self, rounds: int | None = None) -> None:
        """Do idle rounds: take part without gradients until `over`; in a replay that many."""
        with blaming(repr(self), "while it waited for the others' steps"):
            done = self._loop.idle(rounds)
        step = self._loop.progress.step
        self.records.recorder.event("linger", step=step, rounds=done)
        self.records.links(self.connections, step)

    def over(self) -> None:
        """Take notice that no agent trains any more."""
        self._loop.over.set()

    @on_its_device
    def drain(self) -> None:
        """Return when servers and peers have all; called when no agent trains any more."""
        self.connections.drain()

    @on_its_device
    def conclude(self) -> None:
        """Evaluate what all agents of an asynchronous training made together; called when all have ended."""
        self._clock.start()
        self._loop.conclude()
        self.records.deliver()

    def leave(self) -> None:
        """Leave the group; peers that wait for this agent get `PeerLost` at once."""
        self.connections.leave()
        self.data.close()

    # -- asked from outside, by a thread of its own ----------------------------------------------------

    def stop(self, reason: str = "") -> None:
        """Let the running `train` end after its step; reason: why the run is complete then, if it is."""
        self._loop.stop(reason)

    def pause(self, step: int) -> bool:
        """Let the running `train` end before this step; False if it may have begun that already."""
        return self._loop.pause(step)

    def lost(self, rank: int, agents: int, index: int) -> None:
        """Take notice that another agent is gone for good; index: this one's among the `agents` left.

        In a mesh these are replicas.
        """
        if (peers := self.connections.peers) is not None:
            peers.lose(rank)
        if self.experiment.faults.orphans == "taken_over":
            self.data.reshard(agents, index)

    def admit(self, rank: int, address: Address | None = None) -> None:
        """Take notice of an agent that was started again, or has come; address: of its window, if real."""
        if (peers := self.connections.peers) is not None:
            peers.admit(rank, address)

    def reroute(self, shard: int, address: Address) -> int:
        """See `Connections.reroute`."""
        return self.connections.reroute(shard, address)

    def peer_address(self) -> Address:
        """The address at which other agents reach this one's window and mailbox."""
        peers = self.connections.peers
        assert isinstance(peers, RemotePeers)
        return peers.address

    def readings(self) -> Readings:
        """The readings of the agent besides its rows, for its exporter."""
        return {(TRAINING, ""): float(self._trains)}

    def epochs(self) -> Epochs:
        """The epochs, as they are cut into steps by now."""
        return self.data.epochs

    def progress(self) -> Progress:
        """The agent's present step and state."""
        return copy.copy(self._loop.progress)

    def vitals(self) -> Vitals:
        """The signs of life of the agent: where it is, whether it computes, and whom it waits for."""
        if not self._built:
            return Vitals(0, "starts", 0, self._clock.seconds(), ())
        loop, waits = self._loop, (*self.connections.waits(), *self.records.waits())
        doing = self.events.doing or ("trains" if self._trains else "")
        return Vitals(loop.progress.step, doing, loop.pieces, self._clock.seconds(), waits)

    def unseen_faults(self) -> dict[Fault, str]:
        """The planned faults whose moments have not come by now, with why they did not happen."""
        return {} if self._faults is None else self._faults.unseen

    def rows(self) -> int:
        """Rows recorded since the start."""
        return self.records.recorder.rows

    def parameters(self) -> dict[str, np.ndarray[Any, Any]]:
        """A copy of every parameter tensor under its name."""
        return self.executor.named_parameters()

    def model_state(self, *, of_servers: bool = False) -> ModelState:
        """The whole model as it is between two steps, or at rest; also asked from another thread.

        of_servers: with the parameters that the servers have. Raises `ConfigurationError` where there are
        none, and `AgentError` where a step does not end.
        """
        taken = self._server_model if of_servers else self._own_model
        if not self._world.has_threads:
            return taken()
        return self._loop.between.do(taken, self.experiment.timeout_seconds)

    def flat_parameters(self) -> np.ndarray[Any, Any]:
        """A copy of the flat parameters (n,)."""
        return self.executor.numpy_parameters()

    def buffers(self) -> dict[str, np.ndarray[Any, Any]]:
        """A copy of all that is not trained, by name, for an agent that joins late."""
        return buffer_arrays(self.executor)

    def parameters_sha256(self) -> str:
        """SHA-256 over the bytes of the flat parameters."""
        return hashlib.sha256(self.executor.numpy_parameters().tobytes()).hexdigest()

    # --------------------------------------------------------------------------------------------------

    def _own_model(self) -> ModelState:
        return self._model(self.executor.state_dict(), f"agent {self.rank}")

    def _server_model(self) -> ModelState:
        # In a simulation whoever looks takes no time, so that its numbers are those without the look.
        found = self.connections.server_parameters(settled=self._world.has_threads)
        return self._model(self.executor.state_dict(found), "the servers")

    def _model(self, tensors: dict[str, np.ndarray[Any, Any]], of: str) -> ModelState:
        return described(
            tensors, self.experiment, self.data.dataset, self.executor, self._loop.progress.step, of
        )
