"""One agent of a data-parallel training: it loops by itself, exchanges with its peers, records every step.

A plain class that works without Ray; `launch` makes an actor of it.
"""

import copy
import hashlib
import itertools
import math
import platform
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter_ns
from typing import Any, Protocol

import numpy as np

from d5ray.actors.agent_events import AgentEvents
from d5ray.actors.agent_records import LINKS_NS, PROBE_STEPS, AgentRecords
from d5ray.actors.mesh_agent import meet, replicas, staged
from d5ray.actors.metrics_exporter import MetricsExporter, silent
from d5ray.actors.outcome import Outcome
from d5ray.distributed.buffers import LocalBuffers
from d5ray.distributed.checkpoints.rollback import Committed, RestartPoint, begun_anew, prove
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.communicators.simple.absent import Absent
from d5ray.distributed.group.group import Group
from d5ray.distributed.mesh.assignments import Share
from d5ray.distributed.mesh.mesh import Mesh, Seat
from d5ray.distributed.network_cost import LinkCost
from d5ray.distributed.one_sided.peers import Peers
from d5ray.distributed.one_sided.remote_peers import RemotePeers
from d5ray.distributed.optimizers.exchange import ExchangeVia
from d5ray.distributed.parameter_server.client import Server
from d5ray.distributed.parameter_server.remote_client import RemoteServer
from d5ray.distributed.parameter_server.resolved_servers import ResolvedServers
from d5ray.distributed.pipeline.executor import PipelineExecutor
from d5ray.distributed.rpc.service import Address
from d5ray.distributed.topologies.topology import Complete, Topology
from d5ray.distributed.world import Directory, RealWorld, World
from d5ray.errors import AgentError, D5Error, PeerLost
from d5ray.experiment import Experiment
from d5ray.metrics.exports.exported_metrics import TRAINING
from d5ray.metrics.exports.exported_rows import Readings
from d5ray.metrics.record.recorder import Recorder
from d5ray.networks.executors.executor import Allocate, Executor
from d5ray.training.arrays import like
from d5ray.training.batches.batch import Batch
from d5ray.training.batches.epochs import Epochs
from d5ray.training.batches.loader import Loader, pieces_to_test
from d5ray.training.datasets import Dataset
from d5ray.training.samplers import Shards
from d5ray.training.transformations import shape_after

NS = 1e-9
NO_NETWORKS: Mapping[str, LinkCost] = {}
LINGER_SECONDS = 1e-4  # of a round without gradients, at least


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


@dataclass(frozen=True)
class Built:
    """The sizes of an agent's training: its parameters, their bytes, and its epochs."""

    parameters: int
    parameter_bytes: int
    epochs: Epochs

    @property
    def steps_per_epoch(self) -> int:
        """The steps of the first epoch; of all, where the batch size stays."""
        return self.epochs.steps(0)


@dataclass(frozen=True)
class LateEntry:
    """Everything that an agent must know that joins others one-sidedly."""

    group: Group
    step: int  # from which it goes on
    directory: Directory | None
    addresses: Mapping[int, Address]  # of the other agents that are left, where they reach each other
    parameters: np.ndarray[Any, Any] | None = None  # (n,), another agent's
    absent: tuple[int, ...] = ()  # agents that are not there, or not yet


@dataclass(slots=True)
class Progress:
    """The step and state of an agent, for people who watch; the agent changes its own in place."""

    step: int
    epoch: int
    loss: float
    accuracy: float | None


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
        mirror: MetricsExporter | None = None,
    ) -> None:
        # node: by default the name of the machine this runs on; world: by default the real one; attempt: how
        # often an agent with this rank was started before; folder: the run's; mirror: what Ray's metrics show
        self._world = world or RealWorld()
        self.rank = rank
        self.experiment = experiment
        self._sink = sink
        self._run_id, self._folder = run_id, folder
        self.mirror = mirror or silent()
        self._recorder = Recorder(
            run_id=run_id,
            agent=repr(self),
            rank=rank,
            node=node or platform.node(),
            send=self.mirror.watched(sink.samples),
            send_events=sink.events,
            send_frames=self.mirror.watched(sink.frames),
            attempt=attempt,
            now=self._world.scheduler.now,
            wall_minus_mono=self._world.scheduler.epoch(),
        )
        self._records = AgentRecords(self._recorder, rank, experiment)
        self._stop = threading.Event()
        self._stop_reason = ""  # why the run is complete now, if an event of another agent has ended it
        self._called = False  # whether it has trained before
        self._between_epochs = True
        self._warmup_ends = experiment.warmup_steps
        self._over = self._world.scheduler.event()  # when no agent trains any more
        self._step_seconds = 0.0  # of the last training, on average
        self._progress = Progress(step=0, epoch=0, loss=math.nan, accuracy=None)
        self._communication: Communicator | None = None
        self._staged: PipelineExecutor | None = None  # this agent's stage of a network in a mesh
        self._within: list[Communicator] = []  # with those that compute the rest of the network
        mesh = experiment.mesh
        self._seat = Seat(rank, 0, 0) if mesh is None else mesh.seat(rank)
        self._replica = self._seat.replica
        self._counts = self._seat == Seat(self._replica, 0, 0)  # of a replica's agents the one that counts
        self._server: Server | None = None
        self._peers: Peers | None = None
        self._resharding: tuple[int, int] | None = None  # from the next epoch on: agents, and which this is
        self._trains = False
        forms_again = experiment.on_failure != "stop" and not experiment.distributed_optimizer.one_sided
        self._committed = Committed() if forms_again else None
        self.mirror.start(self.readings)

    def __repr__(self) -> str:
        return f"TrainingAgent(rank={self.rank})"

    # -- setting up ------------------------------------------------------------------------------------

    def prepare(self) -> float:
        """Import the framework; returns the seconds it took."""
        begin = perf_counter_ns()
        load: Callable[[], None] | None = getattr(
            sys.modules[self.experiment.make_executor.__module__], "load", None
        )
        if load is not None:
            load()
        return (perf_counter_ns() - begin) / 1e9

    def build(self, dataset: Dataset, share: Share | None = None) -> Built:
        """Make the executor and this agent's share of the data. share: of the network, in a mesh."""
        experiment = self.experiment
        with self._blaming("while it built the model"):
            if share is not None:
                self._staged = staged(experiment, share)
                self._staged.draw_from(experiment.seed, self._replica)
                self._executor: Executor = self._staged
            else:
                executor = experiment.make_executor(
                    experiment.model,
                    dict(experiment.model_kwargs),
                    sample_shape=shape_after(experiment.pipeline, dataset.sample_shape),
                    classes=len(dataset.classes),
                    loss=experiment.loss,
                    seed=experiment.seed,
                    threads=experiment.threads,
                    **experiment.executor_kwargs,
                )
                executor.draw_from(experiment.seed, self.rank)
                self._executor = self._world.delayed(executor, experiment.pace(self.rank))
        self._dataset = dataset
        self._evaluates = experiment.evaluate and len(dataset.test) > 0
        self._shards = Shards(
            samples=len(dataset.train),
            agents=experiment.replicas,
            batch_size=experiment.batch_size,
            sampler=experiment.train_sampler,
            seed=experiment.seed,
        )
        self._loader = Loader(
            dataset.train,
            experiment.pipeline,
            seed=experiment.seed,
            ahead=experiment.prefetch if self._world.has_threads else 0,
            threads=int(experiment.cpus_per_agent),
        )
        self._loader.start(self._shards.draws(self._replica))
        self._around = AgentEvents(
            experiment,
            rank=self.rank,
            steps_per_epoch=self._shards.steps_per_epoch,
            executor=self._executor,
            dataset=dataset,
            recorder=self._recorder,
            files=self._sink,
            now=self._world.scheduler.now,
            run_id=self._run_id,
            folder=self._folder,
        )
        parameters = self._executor.parameters
        experiment.distributed_optimizer.check(int(parameters.shape[0]))
        if experiment.resolved_servers is not None:
            experiment.resolved_servers.servers.check_parameters(int(parameters.shape[0]))
        return Built(
            parameters=int(parameters.shape[0]),
            parameter_bytes=int(parameters.nbytes),
            epochs=self._shards.epochs,
        )

    def join(
        self,
        group: Group,
        networks: Mapping[str, LinkCost] = NO_NETWORKS,
        directory: Directory | None = None,
    ) -> str:
        """Join the group, take the first agent's parameters, and bind the distributed optimizer.

        networks: what is known of the backends between these hosts; with it every exchange is predicted.
        directory: where the parameter servers are, if there are any. Returns the name of the communicator's
        backend.
        """
        experiment = self.experiment
        assert experiment.topology is not None
        if experiment.mesh is not None:
            group = self._join_stages(experiment.mesh, group)
        communication = self._enter(group, experiment.topology)
        if ExchangeVia.SHARED_MEMORY in experiment.distributed_optimizer.exchange:
            communication.broadcast(self._executor.parameters, root=0)
            self._executor.use_buffers(_common_first(communication))
        elif experiment.resolved_servers is None:
            self._executor.use_buffers(communication.allocate)
            communication.broadcast(self._executor.parameters, root=0)
        else:
            communication.broadcast(self._executor.parameters, root=0)
            self._connect(experiment.resolved_servers, communication, directory)
        if ExchangeVia.PEERS in experiment.distributed_optimizer.exchange:
            self._peers = self._world.meet(self._executor.parameters, communication)
        self._bind(communication)
        self._commit()
        self._network = networks.get(communication.backend)
        self._steps = self._records.steps(self._network)
        return communication.backend

    def _join_stages(self, mesh: Mesh, group: Group) -> Group:
        """Meet those that compute the rest of the network; the group of those with the same parameters."""
        assert self._staged is not None
        meet(self._staged, mesh, group, self._meet)
        self._around.within = tuple(self._within)
        return replicas(mesh, group)

    def _meet(self, group: Group) -> Communicator:
        """The communicator with others that compute this agent's network."""
        made = self._world.join(
            self.experiment.communicator, replace(group, device=self._device), Complete(group.size)
        )
        self._within.append(made)
        return made

    def _sent_within(self) -> tuple[int, int]:
        """The bytes that a member of a mesh has sent so far to other stages, and to other parts."""
        *parts, stages = (each.traffic.bytes_sent for each in self._within)
        return stages, sum(parts)

    def take_first(self, group: Group, topology: Topology) -> str:
        """Take the parameters of the first agent of those that are there; returns the backend's name."""
        communication = self._enter(group, topology)
        communication.broadcast(self._executor.parameters, root=0)
        communication.close()
        return communication.backend

    def join_late(self, entry: LateEntry) -> None:
        """Join agents that do not wait for this one, at the beginning or in the place of one that died.

        The parameters come from the servers, or are those of another agent; for one-sided optimizers.
        """
        experiment = self.experiment
        assert experiment.topology is not None
        communication = self._communication = Absent(entry.group, experiment.topology)
        if experiment.resolved_servers is not None:
            self._connect(experiment.resolved_servers, communication, entry.directory)
        if ExchangeVia.PEERS in experiment.distributed_optimizer.exchange:
            if entry.parameters is not None:
                self._executor.parameters[...] = like(self._executor.parameters, entry.parameters)
            self._peers = self._world.meet(self._executor.parameters, communication, entry.addresses)
            self._peers.complete = False
            for rank in entry.absent:
                self._peers.lose(rank)
        self._bind(communication)
        self._network = None
        self._steps = self._records.steps(None)
        self._start_at(entry.step, entry.group.size, self.rank)
        self._recorder.event("joined", step=entry.step)

    def rejoin(self, group: Group, topology: Topology) -> RestartPoint:
        """Form a new group with those that are left, and those that were started again.

        All go on from the step of the one that has done the most, drawing that step's samples: those of a
        step that nobody has completed are drawn again, by all that are there now. A rule that trains one
        model has that one's state on all, proved by a hash; the agents of others go back to their own last
        complete step, and new ones take that one's. Raises `PeerLost` where another one is lost meanwhile:
        the same can then be done again.
        """
        assert self._committed is not None
        one_model = self.experiment.distributed_optimizer.one_model
        try:
            communication = self._enter(group, topology)
            self._executor.use_buffers(communication.allocate)
            agreed = self._committed.agree(communication, self._executor.parameters, one_model)
            self._committed.give_parameters(self._executor)
            self._bind(communication)
            self._committed.give_rule(self._optimizer, one_model)
            anew = begun_anew(self._optimizer, self._committed)
            agreed = replace(agreed, anew=anew)
            if one_model:
                sha256 = prove(agreed.step, self._optimizer, self._executor, communication)
                agreed = replace(agreed, sha256=sha256)
        except D5Error:
            self.leave()
            raise
        taken_over = self.experiment.orphans == "taken_over"
        index = group.rank if taken_over else self.rank
        self._start_at(agreed.step, group.size if taken_over else self._shards.agents, index)
        if not hasattr(self, "_steps"):
            self._network = None
            self._steps = self._records.steps(None)
        self._recorder.event("agreed", step=agreed.step, group=group.epoch, sha256=agreed.sha256)
        return agreed

    def _commit(self) -> None:
        """Keep the state as it is now, if a death among the agents may ask for it."""
        if self._committed is not None:
            self._committed.keep(self._progress.step, self._optimizer, self._executor)

    @property
    def _device(self) -> str:
        """The communicators' name for the device with the parameters."""
        return str(getattr(self._executor.parameters, "device", "cpu"))

    def _enter(self, group: Group, topology: Topology) -> Communicator:
        made = self._world.join(self.experiment.communicator, replace(group, device=self._device), topology)
        self._communication = made
        return made

    def _connect(
        self, resolved: ResolvedServers, communication: Communicator, directory: Directory | None
    ) -> None:
        """Take the servers' parameters into memory that they reach."""
        resolved = resolved.timed(self._shards.epochs, self._shards.agents)
        self._server = self._world.connect(resolved, self._executor.parameters, communication, directory)
        self._executor.use_buffers(self._server.allocate)
        self._server.pull(into=self._executor.parameters)

    def _bind(self, communication: Communicator) -> None:
        experiment = self.experiment
        self._optimizer = copy.copy(
            experiment.distributed_optimizer
        )  # agents of one process must not share it
        with self._blaming("while its distributed optimizer started"):
            self._optimizer.bind(
                executor=self._executor,
                base=experiment.optimizer.timed(self._shards.epochs),
                communication=communication,
                rng=np.random.default_rng([experiment.seed, self._replica]),
                shared_rng=np.random.default_rng([experiment.seed, communication.size]),
                server=self._server,
                peers=self._peers,
            )
        self._around.bind(self._optimizer)

    def _start_at(self, step: int, agents: int, index: int) -> None:
        """Go on with this step's share of the data, as the index-th of that many agents."""
        self._shards = replace(self._shards, agents=agents)
        self._loader.start(self._shards.draws(index, first_step=step))
        self._progress.step = step
        self._between_epochs = self._shards.epochs.position(step)[1] == 0

    def resume(self, path: str, step: int) -> None:
        """Go on from this checkpoint; called when the agents have joined each other."""
        assert self._communication is not None
        with self._blaming("while it took over its checkpoint"):
            saved = self._around.resume(path, step)
        self._start_at(saved.step, self._shards.agents, self.rank)
        self._warmup_ends = saved.step + self.experiment.warmup_steps
        self._progress.epoch = saved.epoch
        self._commit()

    # -- training --------------------------------------------------------------------------------------

    def train(self, steps: int) -> Outcome:
        """Do `steps` further steps; evaluates where an epoch ends, and at the end. Never raises.

        An agent that cannot go on leaves its group, so that its peers do not wait for it.
        """
        if self._optimizer.asynchronous or self._called:
            self._recorder.event("train", step=self._progress.step, steps=steps)
        self._called = True
        self._over = self._world.scheduler.event()
        if self._stop_reason:  # an event has ended the training before, not this one
            self._stop_reason = ""
            self._stop.clear()
        self._trains = True
        begin = self._world.scheduler.now()
        self._around.moment.begin()
        try:
            self._around.happen(self._around.hooks.before_run)
            outcome = self._loop(steps)
            if not self._optimizer.asynchronous:
                self._around.moment.completed = outcome.completed
                self._around.happen(self._around.hooks.after_run)
        except PeerLost as error:
            status = "stopped" if self._stop.is_set() else "peer_lost"
            outcome = Outcome(status, self._progress.step, str(error))
        except D5Error as error:
            outcome = Outcome("failed", self._progress.step, str(error))
        except SystemExit as error:  # Ray would take it for the actor's wish to end
            outcome = Outcome("failed", self._progress.step, _left(error))
        except Exception:
            outcome = Outcome("failed", self._progress.step, traceback.format_exc(limit=-8))
        if not outcome.completed:
            self._recorder.event(outcome.status, step=outcome.step, reason=outcome.reason)
            self.leave()
        self._trains = False
        self._around.moment.end()
        self._step_seconds = (self._world.scheduler.now() - begin) * NS / max(1, steps)
        self._record_links()
        try:
            self._recorder.flush()
            self._sink.drain()
        except D5Error as error:
            return Outcome("failed", self._progress.step, str(error))
        return outcome

    def _loop(self, steps: int) -> Outcome:
        optimizer, executor, communication = self._optimizer, self._executor, self._communication
        assert communication is not None
        clock, server, peers = self._world.scheduler.now, self._server, self._peers
        traffic, network = communication.traffic, self._network
        recorder, frame = self._recorder, self._steps
        around, staged = self._around, self._staged
        hooks, moment = around.hooks, around.moment
        progress = self._progress
        last = progress.step + steps
        self._resume()
        self._commit()  # what events did since the last step
        mark, record_ns = clock(), 0  # a step lasts from the end of the one before to its own end
        links_at = mark + LINKS_NS
        probes = self._counts and communication.size > 1
        probes = probes and (optimizer.asynchronous or optimizer.untrained == LocalBuffers())
        while progress.step < last:
            step = progress.step
            if self._stop.is_set():
                return self._stopped(step)
            moment.step = step
            if self._between_epochs:
                self._between_epochs = False
                around.happen(hooks.before_epoch)
            for hook in hooks.before_sampling:
                hook(moment)
            drawing = clock()
            batch = self._next_batch(step)
            data_ns = clock() - drawing
            moment.batch, moment.epoch = batch, batch.epoch
            for hook in hooks.after_sampling:
                hook(moment)
            batch = moment.batch
            for hook in hooks.before_step:
                hook(moment)
            forward_ns, backward_ns = executor.forward_ns, executor.backward_ns
            update_ns, exchange_ns = optimizer.update_ns, traffic.nanoseconds
            sent, received, messages = traffic.bytes_sent, traffic.bytes_received, traffic.messages_sent
            rounds = traffic.rounds
            within = (0, 0) if staged is None else self._sent_within()

            optimizer.step(batch)

            now = clock()
            step_ns = now - mark
            samples = len(batch.labels)
            loss = optimizer.loss if samples else None
            values: tuple[float | None, ...] = (
                loss,
                step_ns,
                data_ns,
                executor.forward_ns - forward_ns,
                executor.backward_ns - backward_ns,
                traffic.nanoseconds - exchange_ns,
                optimizer.update_ns - update_ns,
                record_ns,
                samples if self._counts else None,
                samples / step_ns if step_ns and self._counts else None,
                traffic.bytes_sent - sent,
                traffic.bytes_received - received,
                traffic.messages_sent - messages,
            )
            if network is not None:
                values += (network.predict(traffic.rounds - rounds, traffic.bytes_received - received),)
            phase = "warmup" if step < self._warmup_ends else "train"
            frame.append(step, batch.epoch, phase, values, now)
            if staged is not None and samples:
                to_stages, to_parts = self._sent_within()
                went = to_stages - within[0], to_parts - within[1]
                self._records.passed(step, batch.epoch, phase, staged, went)
            if server is not None or peers is not None:
                self._record_operations(step, batch.epoch, phase)
                if now >= links_at:
                    self._record_links()
                    links_at = now + LINKS_NS
            if probes and step % PROBE_STEPS == 0:
                self._records.probed(step, executor.parameters)
            progress.step, progress.epoch, progress.loss = step + 1, batch.epoch, optimizer.loss
            self._commit()
            recorder.poll(now)
            if loss is not None and not math.isfinite(loss):
                return Outcome("nan_loss", step + 1, f"the loss became {loss} at step {step} on {self!r}")
            mark = now
            record_ns = clock() - now
            moment.step, moment.loss = step + 1, optimizer.loss
            for hook in hooks.after_step:
                hook(moment)
            if batch.ends_epoch:
                self._end_epoch(progress.step == last)
            moment.batch = None
            if around.stops and around.agree_to_stop(batch.ends_epoch):
                break
            if around.aside:  # an evaluation or a checkpoint, which belongs to no step
                if progress.step < last:
                    self._resume()
                mark, record_ns, around.aside = clock(), 0, False
        if not optimizer.asynchronous and not around.settled:
            self._settle()
        return Outcome("completed", progress.step, moment.stop_reason if progress.step < last else "")

    def _end_epoch(self, ends_run: bool) -> None:
        """Do what follows an epoch's last step."""
        if self._evaluates and not (ends_run and self._optimizer.asynchronous):
            self._settle()
        self._around.happen(self._around.hooks.after_epoch)
        self._between_epochs = True

    def _stopped(self, step: int) -> Outcome:
        if self._stop_reason:
            return Outcome("completed", step, self._stop_reason)
        return Outcome("stopped", step, "stopped on request")

    def linger(self, rounds: int | None = None) -> None:
        """Take part without gradients, at the pace of the steps, until `over`; in a replay these rounds."""
        done, pace = 0, max(LINGER_SECONDS, self._step_seconds)
        with self._blaming("while it waited for the others' steps"):
            while done < rounds if rounds is not None else not self._over.wait(pace):
                self._optimizer.linger(self._progress.step + done)
                done += 1
        self._recorder.event("linger", step=self._progress.step, rounds=done)
        self._record_links()

    def over(self) -> None:
        """Take notice that no agent trains any more."""
        self._over.set()

    def drain(self) -> None:
        """Return when servers and peers have all; called when no agent trains any more."""
        if self._server is not None:
            self._server.drain()
        if self._peers is not None:
            self._peers.drain()

    def conclude(self) -> None:
        """Evaluate what all agents of an asynchronous training made together; called when all have ended."""
        self._settle()
        self._record_operations(self._progress.step - 1)
        self._around.moment.completed = True
        self._around.happen(self._around.hooks.after_run)
        self._recorder.flush()
        self._sink.drain()

    def _settle(self) -> None:
        self._optimizer.settle()
        self._around.settled = self._around.aside = True
        if self._evaluates:
            self._evaluate(self._progress.epoch)

    def _resume(self) -> None:
        if self._around.settled:
            self._optimizer.resume()
            self._around.settled = False

    def _record_operations(self, step: int, epoch: int | None = None, phase: str = "run") -> None:
        self._records.operations(self._server, self._peers, step, epoch, phase)

    def _record_links(self) -> None:
        self._records.links(self._server, self._peers, self._progress.step)

    def _next_batch(self, step: int) -> Batch:
        batch = self._loader.next(step)
        if batch.ends_epoch and self._resharding is not None:
            agents, index = self._resharding
            self._resharding = None
            self._shards = replace(self._shards, agents=agents)
            self._loader.start(self._shards.draws(index, batch.epoch + 1))
        return batch

    def _evaluate(self, epoch: int) -> None:
        clock = self._world.scheduler.now
        self._around.happen(self._around.hooks.before_test)
        begin = clock()
        pieces = pieces_to_test(self._dataset.test, self.experiment.pipeline)
        result = self._executor.evaluate_pieces(pieces)
        seconds = (clock() - begin) * 1e-9
        step = self._progress.step - 1
        accuracy = result.accuracy if self.experiment.loss.classifies else None
        self._records.evaluated(step, epoch, (result.loss, accuracy, seconds))
        self._recorder.poll()
        self._progress.accuracy = accuracy
        self._around.moment.evaluation = result
        self._around.happen(self._around.hooks.after_test)

    # -- asked from outside ----------------------------------------------------------------------------

    def stop(self, reason: str = "") -> None:
        """Let the running `train` end after its step; reason: why the run is complete then, if it is."""
        if reason and self._within:  # those that compute a network end after the same step
            self._around.moment.stop_reason = reason
            return
        self._stop_reason = reason
        self._stop.set()

    def lost(self, rank: int, agents: int, index: int) -> None:
        """Take notice that another agent is gone for good; index: this one's among the `agents` left."""
        if self._peers is not None:
            self._peers.lose(rank)
        if self.experiment.orphans == "taken_over":
            self._resharding = (agents, index)

    def reroute(self, shard: int, address: Address) -> None:
        """A parameter server is to be found there from now on."""
        assert isinstance(self._server, RemoteServer)
        self._server.reroute(shard, address)

    def peer_address(self) -> Address:
        """The address at which other agents reach this one's window and mailbox."""
        assert isinstance(self._peers, RemotePeers)
        return self._peers.address

    def admit(self, rank: int, address: Address | None = None) -> None:
        """Take notice of an agent that was started again, or has come; address: of its window, if real."""
        if self._peers is not None:
            self._peers.admit(rank, address)

    def readings(self) -> Readings:
        """The readings of the agent besides its rows, for Ray's metrics."""
        return {(TRAINING, ""): float(self._trains)}

    def progress(self) -> Progress:
        """The agent's present step and state."""
        return copy.copy(self._progress)

    def rows(self) -> int:
        """Rows recorded since the start."""
        return self._recorder.rows

    def parameters(self) -> dict[str, np.ndarray[Any, Any]]:
        """A copy of every parameter tensor under its name."""
        return self._executor.named_parameters()

    def flat_parameters(self) -> np.ndarray[Any, Any]:
        """A copy of the flat parameters (n,)."""
        return self._executor.numpy_parameters()

    def parameters_sha256(self) -> str:
        """SHA-256 over the bytes of the flat parameters."""
        return hashlib.sha256(self._executor.numpy_parameters().tobytes()).hexdigest()

    def leave(self) -> None:
        """Leave the group; peers that wait for this agent get `PeerLost` at once."""
        if self._server is not None:
            self._server.close()
        if self._peers is not None:
            self._peers.close()
        if self._communication is not None:
            self._communication.close()
        if self._staged is not None and self._within:
            self._staged.close()
        for communicator in self._within:
            communicator.close()
        if hasattr(self, "_loader"):
            self._loader.close()

    @contextmanager
    def _blaming(self, when: str) -> Iterator[None]:
        """Turn an exception of the user's code into an `AgentError` that says where it happened."""
        try:
            yield
        except D5Error:
            raise
        except SystemExit as error:
            raise AgentError(f"{self!r} failed {when}: {_left(error)}") from error
        except Exception as error:
            text = "".join(traceback.format_exception(error, limit=-8)).rstrip()
            raise AgentError(f"{self!r} failed {when}:\n{text}") from error


def _left(error: SystemExit) -> str:
    code = "" if error.code is None else repr(error.code)
    return (
        f"the experiment's code called sys.exit({code}) in it, which is no verdict: raise an error where "
        "it cannot go on; an event that is to end the training sets `stops` and calls `moment.stop`"
    )


def _common_first(communication: Communicator) -> Allocate:
    """Gives the parameters' memory, which is asked for first, to all agents in common."""
    calls = itertools.count()

    def allocate(elements: int, dtype: str) -> np.ndarray[Any, Any]:
        if next(calls) == 0:
            return communication.common(elements, dtype)
        return communication.allocate(elements, dtype)

    return allocate
