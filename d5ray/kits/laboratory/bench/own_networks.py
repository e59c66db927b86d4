"""NetworkBench: a whole network under several frameworks, at several sizes of a batch"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np

from d5ray.actors.executors.call_timer import random_values
from d5ray.errors import ConfigurationError
from d5ray.kits.laboratory.bench import user_objects
from d5ray.kits.laboratory.bench.bench import FrameworkBench, check_numbers
from d5ray.kits.laboratory.bench.own_network import OwnNetwork
from d5ray.kits.laboratory.metrics.operator_calls import NETWORK_TIME
from d5ray.networks.executors.costs import pass_flops, tensor_bytes
from d5ray.networks.graph.tensors import is_floating
from d5ray.operators.framework import Call, Framework, class_named
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.counting.measurable import MakeArray, described
from d5ray.ops.problem import FORWARD, TRAINING, TRAINING_TENSORS

MOST_BATCH = 1 << 20


@final
@dataclass(frozen=True)
class NetworkProblem:
    """A network at one size of a batch; `problem_of` counts what it takes.

    device, threads, seed  of the executors
    inputs                 of a pass, by name; labels: None where nothing is trained
    """

    network: OwnNetwork
    batch: int
    of: str
    device: str
    threads: int
    seed: int
    inputs: Mapping[str, TensorDescriptor]
    labels: TensorDescriptor | None
    flops: int
    moved_bytes: int
    needed_bytes: int

    metric: ClassVar[str] = NETWORK_TIME
    level: ClassVar[int] = 1

    @property
    def name(self) -> str:
        """The network's name with the size of the batch."""
        return f"{self.network.name} batch {self.batch}"

    @property
    def group(self) -> str:
        """The size of the batch: what frameworks are compared at."""
        return f"batch {self.batch}"

    @property
    def input_bytes(self) -> int:
        """The bytes of a batch."""
        return sum(each.bytes for each in self.inputs.values())

    def describe(self) -> dict[str, Any]:
        """The description of it for readers of a run's tables, as JSON data."""
        known, inputs = self.network.output, tuple(self.inputs.values())
        output = [self.batch, *known.shape[1:]] if known is not None and known.shape else None
        return described(self, self.network.kind, inputs, self.of, output, self.network.sample)

    def call(self, framework: Framework, array: MakeArray) -> Call:
        """A pass on a random batch in the host's memory, as executors take it."""
        given = {name: framework.numbers(array(each, *_range(each))) for name, each in self.inputs.items()}
        labels = None
        if self.labels is not None:
            labels = framework.numbers(array(self.labels, 0, max(0, self.network.classes - 1)))
        threads = self.threads if self.device == "cpu" else 1
        return self.network.call(framework.name, self.device, threads, self.seed, given, labels)

    def check(self, framework: str) -> None:
        """Raise `ConfigurationError` where the network cannot infer or gives NaN, after one call here."""
        own, random = class_named(framework).on(self.device), np.random.default_rng(0)
        where = f"{self.network.name} with a batch of {self.batch} under {framework}"

        def array(descriptor: TensorDescriptor, low: float, high: float) -> Any:
            return own.array(random_values(random, descriptor, low, high))

        with user_objects.trying(where, "the batch, or what is made of it,"):
            found = self.call(own, array)()
        outputs = found if isinstance(found, dict) else {"output": found}
        for name, each in outputs.items():
            numbers = np.asarray(each)
            if is_floating(numbers.dtype) and not np.isfinite(numbers.astype(np.float64)).all():
                raise ConfigurationError(
                    f"{where} gives numbers that are not finite in its {name!r}: mend it"
                )


@final
@dataclass(frozen=True, kw_only=True)
class NetworkBench(FrameworkBench):
    """A network of the user's own, or of the catalogue; see `Bench` for the other values.

    batches   sizes of a batch
    training  with the backward pass
    """

    recipe: ClassVar[str] = "bench_network"
    metric: ClassVar[str] = NETWORK_TIME

    network: OwnNetwork
    batches: tuple[int, ...] = (1,)
    training: bool = False
    dtype: str = field(init=False, default="float32")

    def __post_init__(self) -> None:
        found = self.network.network
        kinds = [] if found is None else [each.dtype.name for each in found.parameters.values()]
        object.__setattr__(self, "dtype", kinds[0] if kinds else "float32")
        super().__post_init__()
        check_numbers("--batch", self.batches, 1, MOST_BATCH)
        if self.training and (self.network.output is None or len(self.network.inputs(self.batches[0])) != 1):
            raise ConfigurationError(
                f"{self.network.name} has several inputs or outputs, and is trained with one of each: "
                "measure its inference, without --training"
            )
        for name in self.frameworks:
            self.network.check(name)
        smallest = min(self.batches)
        trial = self._problem(smallest, FORWARD)
        for name in self.frameworks:
            trial.check(name)

    @cached_property
    def _problems(self) -> tuple[NetworkProblem, ...]:
        return tuple(self._problem(size, TRAINING if self.training else FORWARD) for size in self.batches)

    def _problem(self, batch: int, of: str) -> NetworkProblem:
        return problem_of(self.network, batch, of, self.device, self.threads, self.seed)

    def problems(self) -> Sequence[NetworkProblem]:
        return self._problems

    @property
    def title(self) -> str:
        return f"bench network {self.network.name}{' in training' if self.training else ''}"

    @property
    def fixed(self) -> dict[str, Any]:
        loss = repr(self.network.loss) if self.training else None
        return {
            "network": self.network.name,
            "sample": list(self.network.sample),
            "classes": self.network.classes,
            "batches": list(self.batches),
            "mode": "training" if self.training else "inference",
            "loss": loss,
            "device": self.device,
            "dtype": self.dtype,
        }


def problem_of(own: OwnNetwork, batch: int, of: str, device: str, threads: int, seed: int) -> NetworkProblem:
    """A network at one size of a batch, with what a pass takes.

    Operations are those of all nodes, 0 where those of one are not known. Bytes are those of the batch and of
    the parameters, in training with their gradients: what lies between the layers may stay in a cache.
    """
    network, training = own.network, of == TRAINING
    inputs = own.inputs(batch)
    flops, parameters, sizes = 0, 0, list[int]()
    if network is not None:
        flops = pass_flops(network, batch, training=training)
        parameters = sum(each.nbytes for each in network.parameters.values())
        sizes = sorted(tensor_bytes(network, batch).values())
    moved = sum(each.bytes for each in inputs.values()) + parameters * (TRAINING_TENSORS if training else 1)
    return NetworkProblem(
        network=own,
        batch=batch,
        of=of,
        device=device,
        threads=threads,
        seed=seed,
        inputs=inputs,
        labels=own.labels(batch) if training else None,
        flops=flops,
        moved_bytes=moved,
        needed_bytes=moved + 2 * sum(sizes if training else sizes[-2:]),
    )


def _range(descriptor: TensorDescriptor) -> tuple[float, float]:
    """The values of an input: numbers around 0, or the first two of tokens."""
    return (-1.0, 1.0) if is_floating(descriptor.dtype) else (0.0, 1.0)
