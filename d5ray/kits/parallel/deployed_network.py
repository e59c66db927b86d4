"""Deploys a network on piece holders: processes, each with one of its stages or parts"""

import math
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Any, Self, final

import numpy as np
import psutil
import ray

from d5ray.actors.calls import CALL_SECONDS, ActorDied, get, owned
from d5ray.actors.cluster.placement import Place, place_of, process_of
from d5ray.actors.group.coordinator import Coordinator
from d5ray.actors.group.run_row import new_run_id
from d5ray.actors.remote import END_SECONDS, SETUP_SECONDS, spawned
from d5ray.actors.session import session
from d5ray.actors.shipping import ship
from d5ray.checks import check_count, check_number
from d5ray.distributed.communicators.backends import check_backend
from d5ray.distributed.model_parallelism import Parameters
from d5ray.errors import AgentError, ConfigurationError, D5Error, PeerLost, first_line, nearest
from d5ray.kits.parallel.executors import piece_executor_by_name
from d5ray.kits.parallel.mesh.mesh import Mesh
from d5ray.kits.parallel.mesh.shares import Shares
from d5ray.kits.parallel.piece_holder import PieceHolder
from d5ray.kits.parallel.pipeline.measured_times import PassTimes
from d5ray.networks.device import Device, GPUDevice
from d5ray.networks.executors.executor import Evaluation
from d5ray.networks.executors.inputs import check_values
from d5ray.networks.executors.labelled_network import LabelledNetwork, labelled
from d5ray.networks.network import Network
from d5ray.operators.loss import Loss
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss

Array = np.ndarray[Any, Any]
LEAVE_SECONDS = 5.0  # for the executors to let go of one another


def deploy(
    network: Network | LabelledNetwork,
    mesh: Mesh,
    *,
    framework: str = "torch",
    loss: Loss | None = None,
    device: Device | None = None,
    threads: int = 1,
    seed: int = 0,
    communicator: str = "auto",
    encryption: bool = True,
    cpus_per_executor: float = 1.0,
    timeout_seconds: float = 120.0,
    pass_seconds: float = 600.0,
    address: str | None = None,
    quiet: bool = False,
) -> "DeployedNetwork":
    """Compute a network by stages × parts `PieceHolder` actors. Use it as a context manager.

    Every executor holds only its own piece of the network. Tensors between pieces are sent by their
    communicator; actor calls carry only the batch and the requested results.

    network          of one input (batch, ...) and one output, to which labels and a loss are added, or one
                     that has them (`labelled`)
    mesh             of one replica: stages, schedule, micro-batches, recomputation, parts and their split
    loss             of the scores, by default `SoftmaxCrossEntropyLoss()`
    device           of every executor, by default the framework's own: a GPU for CuPy, else the CPU
    threads          of every executor's framework
    seed             of the network's random numbers in training
    communicator     the backend; 'auto' chooses by the executors' nodes and devices
    encryption       whether messages to other machines are sent under TLS; False: plainly
    timeout_seconds  the bound on waits of executors for one another
    pass_seconds     the most that one call may take
    address          of a Ray cluster, as in `launch`; quiet: whether Ray prints nothing

    Raises `ConfigurationError` for settings that do not fit, before anything starts, and `PlacementError` if
    the cluster cannot place the executors or does not answer. After an error nothing is left running.
    """
    check_count("threads", threads)
    check_backend(communicator)
    for name, value in (("timeout_seconds", timeout_seconds), ("pass_seconds", pass_seconds)):
        check_number(name, value, low=0.0, low_included=False)
    check_number("cpus_per_executor", cpus_per_executor, low=0.0, low_included=True)
    piece_executor_by_name(framework)
    if not isinstance(mesh, Mesh):
        raise ConfigurationError(f"mesh is {mesh!r}: it must be a Mesh such as Mesh(stages=3)")
    if not isinstance(network, Network | LabelledNetwork):
        raise ConfigurationError(
            f"network is a {type(network).__name__}: it must be a Network, which Network.from_model makes of "
            "a model of PyTorch or Keras, and Network.from_onnx of a file"
        )
    if mesh.replicas != 1:
        raise ConfigurationError(
            f"the mesh has {mesh.replicas} replicas, and a network is deployed once: set replicas=1, or "
            "train several with an Experiment(mesh=...)"
        )
    loss = loss or SoftmaxCrossEntropyLoss()
    whole = network if isinstance(network, LabelledNetwork) else labelled(network, loss, _sample(network))
    shares = Shares(mesh, whole)
    ship((mesh, loss), "the mesh or the loss")
    name = f"deploy {whole.network.name}"
    cpus = math.ceil(mesh.agents * cpus_per_executor)
    gpus = float(framework == "cupy" if device is None else device == GPUDevice())
    session.connect(address, cpus=cpus, metadata={"task": name}, quiet=quiet)
    run_id = new_run_id(name)
    arguments = [(framework, threads, rank, seed) for rank in range(mesh.agents)]
    with ExitStack() as stack:
        processes: list[psutil.Process] = []
        stack.callback(psutil.wait_procs, processes, timeout=END_SECONDS)  # when they have been killed
        actors = stack.enter_context(spawned(PieceHolder, arguments, cpus=cpus_per_executor, gpus=gpus))
        places = get([actor.__ray_call__.remote(place_of) for actor in actors], SETUP_SECONDS, "start")
        here = place_of(None)
        processes += [each for place in places if place.node == here.node and (each := process_of(place))]
        holding = [
            actor.hold.remote(shares.at(rank), mesh, loss, device) for rank, actor in enumerate(actors)
        ]
        get(holding, SETUP_SECONDS, "build its piece of the network")
        coordinator = Coordinator(run_id, timeout_seconds, here, encrypted=encryption)
        stack.callback(coordinator.close)
        groups = coordinator.issue(places)
        joining = [
            actor.meet.remote(group, communicator) for actor, group in zip(actors, groups, strict=True)
        ]
        get(joining, timeout_seconds + CALL_SECONDS, "meet the others")
        return DeployedNetwork(whole, shares, actors, places, pass_seconds, stack.pop_all())


@final
class DeployedNetwork:
    """A network with each stage and part in its own `PieceHolder` actor; `deploy` makes it.

    If an executor fails or dies during a call, it raises `AgentError` with its stage and part, and all
    executors end.

    mesh       the stages and parts
    places     node and process of every executor, ordered by stage, then part
    last_pass  the times and the bubble of the last `inference_and_backprop`
    """

    def __init__(
        self,
        whole: LabelledNetwork,
        shares: Shares,
        actors: list[Any],
        places: list[Place],
        pass_seconds: float,
        running: ExitStack,
    ) -> None:
        # running: ends the actors
        self.mesh, self.places = shares.mesh, places
        self.last_pass: PassTimes | None = None
        self._whole, self._network = whole, whole.network
        self._shares, self._actors, self._seconds, self._running = shares, actors, pass_seconds, running
        self._ended = ""  # why

    def __repr__(self) -> str:
        return f"DeployedNetwork({self.mesh.stages} stages × {self.mesh.parts} parts)"

    def inference(self, inputs: Array) -> Array:
        """Scores (batch, ...) of inputs (batch, ...), without gradients, in evaluation mode."""
        self._check(inputs)
        scores: Array = self._asked("inference", inputs)[0]
        return scores.copy()

    def inference_and_backprop(self, inputs: Array, labels: Array) -> float:
        """The mean loss of the batch; `gradients()` gives its gradient afterwards."""
        self._check(inputs, labels)
        loss, self.last_pass = self._asked("inference_and_backprop", inputs, labels)[0]
        return float(loss)

    def evaluate(self, inputs: Array, labels: Array) -> Evaluation:
        """Mean loss, and accuracy if the loss classifies, over all the samples, in evaluation mode."""
        self._check(inputs, labels)
        found: Evaluation = self._asked("evaluate", inputs, labels)[0]
        return found

    def parameters(self) -> Parameters:
        """A copy of every parameter of the whole network under its name."""
        return owned(self._shares.whole(self._asked("parameters")))

    def gradients(self) -> Parameters:
        """A copy of every parameter's gradient, of the last `inference_and_backprop`, by parameter's name."""
        return owned(self._shares.whole(self._asked("gradients")))

    def state(self) -> Parameters:
        """A copy of the state that training changes beside the parameters, such as running means, by name."""
        return owned(self._shares.whole(self._asked("state")))

    def feed(self, parameters: Mapping[str, Array]) -> None:
        """Replace these parameters of the whole network, from the next pass on.

        Raises `ConfigurationError` for unknown names and wrong shapes; then nothing is replaced.
        """
        known = self._network.parameters
        for name, value in parameters.items():
            if name not in known:
                raise ConfigurationError(f"the network has no parameter {name!r}: {nearest(name, known)}")
            if np.shape(value) != known[name].shape:
                raise ConfigurationError(
                    f"{name!r} is given with the shape {np.shape(value)}: it must be {known[name].shape}"
                )
        self._all("feed", [(self._shares.own(parameters, place),) for place in range(self.mesh.agents)])

    def close(self) -> None:
        """End the executors. Harmless when they have ended."""
        if self._ended:
            return
        self._ended = "it was closed"
        with suppress(D5Error):
            get([actor.leave.remote() for actor in self._actors], LEAVE_SECONDS, "leave the others")
        self._running.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # --------------------------------------------------------------------------------------------------

    def _check(self, inputs: Array, labels: Array | None = None) -> None:
        """Refuse here what an executor would refuse, so that none of them ends."""
        given = {self._whole.inputs: inputs} | ({} if labels is None else {self._whole.labels: labels})
        check_values(self._network, given)
        if not len(inputs):
            raise ConfigurationError("the batch has no samples: give at least one")

    def _asked(self, question: str, *given: Array) -> list[Any]:
        """The answers of all executors; arrays are sent to every node once."""
        references = tuple(ray.put(array) for array in given)
        return self._all(question, [references] * self.mesh.agents)

    def _all(self, question: str, given: list[tuple[Any, ...]]) -> list[Any]:
        if self._ended:
            raise AgentError(f"the executors of this network have ended, since {self._ended}: deploy it anew")
        calls = [
            getattr(actor, question).remote(*own) for actor, own in zip(self._actors, given, strict=True)
        ]
        try:
            return self._answers(calls, question)
        except BaseException as error:
            self._ended = first_line(error)
            self._running.close()
            raise

    def _answers(self, calls: list[Any], question: str) -> list[Any]:
        """The answers of all executors. Of several errors, the one that is not the loss of another."""
        answers, errors = [], dict[int, D5Error]()
        _, late = ray.wait(calls, num_returns=len(calls), timeout=self._seconds)
        for rank, call in enumerate(calls):
            if call in late:
                continue
            try:
                answers += get([call], CALL_SECONDS, f"do its part of {question}")
            except D5Error as error:
                errors[rank] = error
        for rank, found in sorted(errors.items(), key=lambda each: isinstance(each[1], PeerLost)):
            if isinstance(found, ConfigurationError):
                raise found
            how = "died" if isinstance(found, ActorDied) else "failed"
            raise AgentError(f"the executor of {self._place(rank)} {how} in {question}: {found}")
        if late:
            who = self._place(calls.index(late[0]))
            raise AgentError(
                f"the executor of {who} did not do its part of {question} within {self._seconds:g} s: give "
                "deploy a larger pass_seconds, or look at the executors' logs in the Ray dashboard"
            )
        return answers

    def _place(self, rank: int) -> str:
        seat = self.mesh.seat(rank)
        return f"stage {seat.stage}" + (f", part {seat.part}" if self.mesh.parts > 1 else "")


def _sample(network: Network) -> tuple[Any, ...]:
    """The shape of a sample, as the network's input says it."""
    descriptor = next(iter(network.inputs.values()), None)
    return () if descriptor is None or descriptor.shape is None else tuple(descriptor.shape[1:])
