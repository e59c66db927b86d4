"""An actor that computes a piece of a network, of which others have the rest: a plain class"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar, final

import numpy as np

from d5ray.distributed.communicators import backends
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.group.group import Group
from d5ray.distributed.topologies.topology import Complete
from d5ray.frameworks.host import device_name, host_copy, host_view, on_device
from d5ray.kits.parallel.executors import piece_executor_by_name
from d5ray.kits.parallel.mesh.mesh import Mesh
from d5ray.kits.parallel.mesh.shares import Share
from d5ray.kits.parallel.pipeline.executor import PipelineExecutor
from d5ray.kits.parallel.pipeline.measured_times import PassTimes
from d5ray.networks.device import Device
from d5ray.networks.executors.executor import Evaluation
from d5ray.networks.executors.flat_buffers import by_name
from d5ray.operators.framework import class_named
from d5ray.operators.loss import Loss
from d5ray.training.arrays import like, use_device_of

Array = np.ndarray[Any, Any]
Found = TypeVar("Found")


@final
class PieceHolder:
    """Holds a stage, and a part of it where operators are divided, and computes with those that hold others.

    All of them are asked the same at the same time; `d5ray.kits.parallel.deployed_network` does.
    """

    _mesh: Mesh
    _stage: PipelineExecutor

    def __init__(self, framework: str, threads: int, rank: int, seed: int) -> None:
        self._name, self._threads = framework, threads
        self._rank, self._seed = rank, seed
        self._joined: list[Communicator] = []

    def __repr__(self) -> str:
        return f"PieceHolder({self._name})"

    def hold(self, share: Share, mesh: Mesh, loss: Loss, device: Device | None) -> None:
        """Build what is this place's; device: by default the framework's own.

        Raises `ConfigurationError` where the framework is missing, or lacks an operator.
        """
        class_named(self._name)
        options: dict[str, Any] = {"threads": self._threads} | ({} if device is None else {"device": device})
        make = piece_executor_by_name(self._name)
        self._mesh, self._stage = mesh, mesh.stage_of(share, make, loss, options)
        self._stage.draw_from(self._seed, 0)
        use_device_of(self._stage.parameters)  # all calls of an actor come in one thread

    def meet(self, group: Group, backend: str) -> None:
        """Join the executors with the rest; group: of all of them, in which this one's rank is its place."""
        device = device_name(self._stage.parameters)

        def join(some: Group) -> Communicator:
            self._joined.append(backends.join(backend, replace(some, device=device), Complete(some.size)))
            return self._joined[-1]

        self._mesh.meet(self._stage, group, join)

    def inference(self, inputs: Array) -> Array | None:
        """The scores of a batch; of all executors the first one gives what they have found together."""
        return self._first(self._stage.inference(inputs))

    def inference_and_backprop(self, inputs: Array, labels: Array) -> tuple[float, PassTimes | None] | None:
        """The loss of a batch, and what the pass took; from the first executor."""
        return self._first((self._stage.inference_and_backprop(inputs, labels), self._stage.last_pass))

    def evaluate(self, inputs: Array, labels: Array) -> Evaluation | None:
        """The evaluation of all samples, given by the first executor; None by the others."""
        return self._first(self._stage.evaluate(inputs, labels))

    def parameters(self) -> dict[str, Array]:
        """A copy of the parameters that are here, by name."""
        return self._stage.named_parameters()

    def gradients(self) -> dict[str, Array]:
        """The gradients of the last training pass, by parameter's name."""
        flat = self._stage.gradients
        return by_name(host_copy(flat) if on_device(flat) else host_view(flat), self._stage.slots)

    def state(self) -> dict[str, Array]:
        """A copy of what is neither parameter nor gradient, such as running means, by name."""
        return self._stage.named_state()

    def feed(self, parameters: Mapping[str, Array]) -> None:
        """Replace some of the parameters that are here."""
        flat = self._stage.numpy_parameters()
        for name, tensor in by_name(flat, self._stage.slots).items():
            if name in parameters:
                tensor[...] = parameters[name]
        self._stage.parameters[...] = like(self._stage.parameters, flat)

    def leave(self) -> None:
        """Leave the others; those that wait for this one get `PeerLost`."""
        self._stage.close()
        for communicator in self._joined:
            communicator.close()

    def _first(self, found: Found) -> Found | None:
        return found if self._rank == 0 else None
