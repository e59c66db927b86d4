"""One agent of a data-parallel training: it loops by itself, exchanges with its peers, records every step.

A plain class that works without Ray; `launch` makes an actor of it.
"""

import copy
import hashlib
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

from d5ray.distributed import backends
from d5ray.distributed.communicator import Communicator, Group
from d5ray.distributed.cost import Network
from d5ray.distributed.optimizer import DistributedOptimizer
from d5ray.errors import AgentError, D5Error, PeerLost
from d5ray.experiment import Experiment
from d5ray.metrics.recorder import Recorder
from d5ray.training.batch import Batch
from d5ray.training.datasets import Dataset
from d5ray.training.samplers import Shards

NS = 1e-9
STEP_METRICS = {  # and what the agent's own numbers are multiplied with
    "loss": 1.0, "step_time": NS, "data_time": NS, "forward_time": NS, "backward_time": NS,
    "exchange_time": NS, "update_time": NS, "record_time": NS, "samples": 1.0, "samples_per_second": 1e9,
    "bytes_sent": 1.0, "bytes_received": 1.0, "messages_sent": 1.0,
}  # fmt: skip
PREDICTED = {"predicted_exchange_time": 1.0}
NO_NETWORKS: Mapping[str, Network] = {}
EVALUATION_METRICS = ("test_loss", "test_accuracy", "evaluation_time")


class Sink(Protocol):
    """Where an agent's rows go."""

    def samples(self, batch: Any) -> None: ...

    def frames(self, batch: Any) -> None:
        """Rows of a frame in their compact form, see `d5ray.metrics.columns.expand`."""

    def events(self, batch: Any) -> None: ...

    def drain(self) -> None:
        """Return when everything sent has been acknowledged."""


@dataclass(frozen=True)
class Built:
    """What an agent made of the experiment."""

    parameters: int
    parameter_bytes: int
    steps_per_epoch: int


@dataclass(frozen=True)
class Outcome:
    """How a call of `train` ended: completed, stopped, nan_loss, peer_lost, failed or died."""

    status: str
    step: int  # steps done since the start of the run
    reason: str = ""

    @property
    def completed(self) -> bool:
        return self.status == "completed"


@dataclass(slots=True)
class Progress:
    """Where an agent is, for people who watch; the agent changes its own in place."""

    step: int
    epoch: int
    loss: float
    accuracy: float | None


class TrainingAgent:
    """The life of an agent: prepare, build, join, then train as often as wanted, then leave."""

    def __init__(self, rank: int, experiment: Experiment, run_id: str, node: str | None, sink: Sink) -> None:
        # node: by default the name of the machine this runs on
        self.rank = rank
        self.experiment = experiment
        self._sink = sink
        self._recorder = Recorder(
            run_id=run_id,
            agent=repr(self),
            rank=rank,
            node=node or platform.node(),
            send=sink.samples,
            send_events=sink.events,
            send_frames=sink.frames,
        )
        self._evaluations = self._recorder.frame(EVALUATION_METRICS, scope="agent", level=3)
        self._stop = threading.Event()
        self._progress = Progress(step=0, epoch=0, loss=math.nan, accuracy=None)
        self._communication: Communicator | None = None

    def __repr__(self) -> str:
        return f"TrainingAgent(rank={self.rank})"

    # -- setting up ------------------------------------------------------------------------------------

    def prepare(self) -> float:
        """Import the framework; returns the seconds it took."""
        begin = perf_counter_ns()
        load: Callable[[], None] | None = getattr(
            sys.modules[self.experiment.executor.__module__], "load", None
        )
        if load is not None:
            load()
        return (perf_counter_ns() - begin) / 1e9

    def build(self, dataset: Dataset) -> Built:
        """Make the executor and this agent's share of the data."""
        experiment = self.experiment
        with self._blaming("while it built the model"):
            self._executor = experiment.executor(
                experiment.model,
                dict(experiment.model_kwargs),
                sample_shape=dataset.sample_shape,
                classes=len(dataset.classes),
                loss=experiment.loss,
                seed=experiment.seed,
                threads=experiment.threads,
                **experiment.executor_kwargs,
            )
        self._dataset = dataset
        self._evaluates = experiment.evaluate and len(dataset.test) > 0
        assert experiment.agents is not None
        self._shards = Shards(
            samples=len(dataset.train),
            agents=experiment.agents,
            batch_size=experiment.batch_size,
            sampler=experiment.train_sampler,
            seed=experiment.seed,
        )
        self._draws = self._shards.draws(self.rank)
        parameters = self._executor.parameters
        assert isinstance(experiment.distributed, DistributedOptimizer)
        experiment.distributed.check(int(parameters.shape[0]))
        return Built(
            parameters=int(parameters.shape[0]),
            parameter_bytes=int(parameters.nbytes),
            steps_per_epoch=self._shards.steps_per_epoch,
        )

    def join(self, group: Group, networks: Mapping[str, Network] = NO_NETWORKS) -> str:
        """Join the group, take the first agent's parameters, and bind the distributed optimizer.

        networks: what is known of the backends between these hosts; with it every exchange is predicted.
        Returns the name of the communicator's backend.
        """
        experiment = self.experiment
        assert experiment.topology is not None and isinstance(experiment.distributed, DistributedOptimizer)
        device = str(getattr(self._executor.parameters, "device", "cpu"))
        self._communication = backends.join(
            experiment.communicator, replace(group, device=device), experiment.topology
        )
        self._executor.use_buffers(self._communication.allocate)
        self._communication.broadcast(self._executor.parameters, root=0)
        self._optimizer = copy.copy(experiment.distributed)  # agents of one process must not share it
        with self._blaming("while its distributed optimizer started"):
            self._optimizer.bind(
                executor=self._executor,
                base=experiment.optimizer,
                communication=self._communication,
                rng=np.random.default_rng([experiment.seed, self.rank]),
                shared_rng=np.random.default_rng([experiment.seed, group.size]),
            )
        self._network = networks.get(self._communication.backend)
        metrics = STEP_METRICS if self._network is None else STEP_METRICS | PREDICTED
        self._steps = self._recorder.frame(
            tuple(metrics), scope="agent", level=3, scales=tuple(metrics.values())
        )
        return self._communication.backend

    # -- training --------------------------------------------------------------------------------------

    def train(self, steps: int) -> Outcome:
        """Do `steps` further steps; evaluates where an epoch ends, and at the end. Never raises.

        An agent that cannot go on leaves its group, so that its peers do not wait for it.
        """
        try:
            outcome = self._loop(steps)
        except PeerLost as error:
            status = "stopped" if self._stop.is_set() else "peer_lost"
            outcome = Outcome(status, self._progress.step, str(error))
        except D5Error as error:
            outcome = Outcome("failed", self._progress.step, str(error))
        except Exception:
            outcome = Outcome("failed", self._progress.step, traceback.format_exc(limit=-8))
        if not outcome.completed:
            self._recorder.event(outcome.status, step=outcome.step, reason=outcome.reason)
            self.leave()
        try:
            self._recorder.flush()
            self._sink.drain()
        except D5Error as error:
            return Outcome("failed", self._progress.step, str(error))
        return outcome

    def _loop(self, steps: int) -> Outcome:
        optimizer, executor, communication = self._optimizer, self._executor, self._communication
        assert communication is not None
        traffic, network = communication.traffic, self._network
        recorder, frame = self._recorder, self._steps
        warmup = self.experiment.warmup_steps
        progress = self._progress
        last = progress.step + steps
        evaluated = True
        mark, record_ns = perf_counter_ns(), 0  # a step lasts from the end of the one before to its own end
        while progress.step < last:
            step = progress.step
            if self._stop.is_set():
                return Outcome("stopped", step, "stopped on request")
            drawing = perf_counter_ns()
            batch = self._next_batch(step)
            data_ns = perf_counter_ns() - drawing
            forward_ns, backward_ns = executor.forward_ns, executor.backward_ns
            update_ns, exchange_ns = optimizer.update_ns, traffic.nanoseconds
            sent, received, messages = traffic.bytes_sent, traffic.bytes_received, traffic.messages_sent
            rounds = traffic.rounds

            optimizer.step(batch)

            now = perf_counter_ns()
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
                samples,
                samples / step_ns,
                traffic.bytes_sent - sent,
                traffic.bytes_received - received,
                traffic.messages_sent - messages,
            )
            if network is not None:
                values += (network.predict(traffic.rounds - rounds, traffic.bytes_received - received),)
            frame.append(step, batch.epoch, "warmup" if step < warmup else "train", values, now)
            progress.step, progress.epoch, progress.loss = step + 1, batch.epoch, optimizer.loss
            recorder.poll(now)
            if loss is not None and not math.isfinite(loss):
                return Outcome("nan_loss", step + 1, f"the loss became {loss} at step {step} on {self!r}")
            mark = now
            record_ns = perf_counter_ns() - now
            evaluated = False
            if batch.ends_epoch and self._evaluates:
                optimizer.settle()
                self._evaluate(batch.epoch)
                evaluated = True
                mark, record_ns = perf_counter_ns(), 0
        if not evaluated:
            optimizer.settle()
            if self._evaluates:
                self._evaluate(progress.epoch)
        return Outcome("completed", last)

    def _next_batch(self, step: int) -> Batch:
        draw = next(self._draws)
        split = self._dataset.train
        return Batch(
            inputs=split.inputs[draw.indices],
            labels=split.labels[draw.indices],
            weight=draw.weight,
            step=step,
            epoch=draw.epoch,
            ends_epoch=draw.ends_epoch,
        )

    def _evaluate(self, epoch: int) -> None:
        begin = perf_counter_ns()
        test = self._dataset.test
        result = self._executor.evaluate(test.inputs, test.labels)
        seconds = (perf_counter_ns() - begin) * 1e-9
        step = self._progress.step - 1
        self._evaluations.append(step, epoch, "test", (result.loss, result.accuracy, seconds))
        self._recorder.poll()
        self._progress.accuracy = result.accuracy

    # -- asked from outside ----------------------------------------------------------------------------

    def stop(self) -> None:
        """Let the running `train` end after its step."""
        self._stop.set()

    def progress(self) -> Progress:
        """Where the agent is now."""
        return copy.copy(self._progress)

    def rows(self) -> int:
        """Rows recorded since the start."""
        return self._recorder.rows

    def parameters(self) -> dict[str, np.ndarray[Any, Any]]:
        """A copy of every parameter tensor under its name."""
        return self._executor.named_parameters()

    def parameters_sha256(self) -> str:
        """SHA-256 over the bytes of the flat parameters."""
        return hashlib.sha256(self._executor.numpy_parameters().tobytes()).hexdigest()

    def leave(self) -> None:
        """Leave the group; peers that wait for this agent get `PeerLost` at once."""
        if self._communication is not None:
            self._communication.close()

    @contextmanager
    def _blaming(self, when: str) -> Iterator[None]:
        """Turn an exception of the user's code into an `AgentError` that says where it happened."""
        try:
            yield
        except D5Error:
            raise
        except Exception as error:
            text = "".join(traceback.format_exception(error, limit=-8)).rstrip()
            raise AgentError(f"{self!r} failed {when}:\n{text}") from error
