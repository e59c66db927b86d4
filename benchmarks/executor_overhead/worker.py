"""What a process does that times executors: d5ray's pass beside that of the same network written by hand"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, final

import numpy as np

from benchmarks.executor_overhead.measured_network import MeasuredNetwork
from benchmarks.executor_overhead.metrics import INFERENCE, NATIVE, OURS, TRAINING
from benchmarks.interleaved_timing import interleaved, timer
from d5ray.errors import AgentError
from d5ray.kits.laboratory.comparisons.timing import Times
from d5ray.networks.executors.graph_executor import GraphExecutor
from d5ray.networks.executors.labelled_network import LabelledNetwork, labelled
from d5ray.networks.layers.from_layers import network_from_layers
from d5ray.networks.zoo import catalogue
from d5ray.operators.framework import class_named
from d5ray.operators.validation.error_norms import error_norms
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss

Array = np.ndarray[Any, Any]
Found = dict[tuple[str, str], Times]  # by pass and side
GRADIENTS = "gradients"
KINKS = 1e-2  # of gradients, relative: an input of nearly 0 passes the rectifier of one side alone


class Side(Protocol):
    """A network with its batch."""

    def infer(self) -> Array:
        """One pass forwards, to the scores."""

    def train(self) -> float:
        """One pass forwards and backwards, to the loss."""

    def gradients(self) -> list[Array]:
        """Of the last `train`, in the order and the layout of the model that is written by hand."""


@final
@dataclass(frozen=True)
class ExecutorTimes:
    """The work of the one process: both passes of one network for about `seconds`, both sides in turn.

    Both must give the same scores, loss and gradients before anything counts; otherwise `AgentError`.
    """

    of: MeasuredNetwork
    threads: int
    seconds: float
    seed: int

    def __call__(self, rank: int) -> Found:
        class_named(self.of.framework).on("cpu").use_threads(self.threads)
        sides = self.sides()
        self.check(sides)
        found: Found = {}
        for work, name in ((INFERENCE, "infer"), (TRAINING, "train")):
            timers = {side: timer(getattr(each, name)) for side, each in sides.items()}
            found |= {(work, side): times for side, times in interleaved(timers, self.seconds).items()}
        return found

    def sides(self) -> dict[str, Side]:
        """Networks with the same parameters, and the same batch for both."""
        own, values = self.network()
        batch, labels = self.batch()
        written: Any
        if self.of.framework == "torch":
            from benchmarks.executor_overhead import by_hand_in_torch as written  # noqa: PLC0415 - one of the two
        else:
            from benchmarks.executor_overhead import by_hand_in_keras as written  # noqa: PLC0415
        native = written.side(self.of, values, batch, labels)
        return {OURS: OwnExecutor(self.of.framework, own, batch, labels, native.laid_out), NATIVE: native}

    def check(self, sides: dict[str, Side]) -> None:
        """Raise `AgentError` unless both sides compute the same."""
        found = {}
        for name, side in ((OURS, sides[OURS]), (NATIVE, sides[NATIVE])):
            scores, loss = side.infer(), np.float32(side.train())
            gradients = np.concatenate([each.ravel() for each in side.gradients()])
            found[name] = {"scores": scores, "loss": np.asarray(loss), GRADIENTS: gradients}
        for what in found[OURS]:
            norms = error_norms(what, found[OURS][what], found[NATIVE][what])
            passed = norms.relative_l2 <= KINKS and not norms.unequal if what == GRADIENTS else norms.passed
            if not passed:
                raise AgentError(
                    f"d5ray and the {self.of.network} that is written by hand for {self.of.framework} "
                    f"disagree, and nothing is measured: {norms}"
                )

    def network(self) -> tuple[LabelledNetwork, dict[str, Array]]:
        """The network with its loss, and the values of its parameters by PyTorch's names of them."""
        from d5ray.frameworks.torch import build  # noqa: PLC0415 - imports torch, after TensorFlow if both

        of = self.of
        layers = catalogue.network(of.network, of.sample_shape, of.classes, **of.options)
        module = build.seeded(layers, of.sample_shape, self.seed)
        values = {name: np.array(tensor.numpy()) for name, tensor in module.state_dict().items()}
        own = network_from_layers(layers, of.sample_shape, values, name=of.network)
        return labelled(own, SoftmaxCrossEntropyLoss(), of.sample_shape), values

    def batch(self) -> tuple[Array, Array]:
        """Inputs (batch, *shape) and labels (batch, ...), random."""
        of, rng = self.of, np.random.default_rng(self.seed)
        shape = (of.batch_size, *of.sample_shape)
        if len(of.sample_shape) == 1:
            return rng.integers(0, of.classes, shape), rng.integers(0, of.classes, shape)
        return rng.standard_normal(shape, dtype=np.float32), rng.integers(0, of.classes, of.batch_size)


@final
class OwnExecutor:
    """d5ray's executor."""

    def __init__(
        self, framework: str, own: LabelledNetwork, batch: Array, labels: Array, laid_out: Any
    ) -> None:
        self._own = own
        self._laid_out: Callable[[dict[str, Array]], list[Array]] = laid_out
        made = import_module(f"d5ray.frameworks.{framework}").from_onnx(own.network)
        self._executor: GraphExecutor = made
        self._inputs = {own.inputs: batch}
        self._labelled = {own.inputs: batch, own.labels: labels}

    def infer(self) -> Array:
        return self._executor.inference(self._inputs)[self._own.scores]

    def train(self) -> float:
        outputs = self._executor.inference_and_backprop(self._labelled, self._own.loss)
        return float(outputs[self._own.loss])

    def gradients(self) -> list[Array]:
        names, of = zip(*self._own.network.gradient(self._own.loss), strict=True)
        found = self._own.network.fetch_tensors(of)
        return self._laid_out(dict(zip(names, found, strict=True)))
