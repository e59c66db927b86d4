"""The executor that agents train with, over any executor of a Network whose tensors can be bound to arrays"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.frameworks.initial_values import labelled_network
from d5ray.networks.executors.array_library import ArrayLibrary
from d5ray.networks.executors.evaluation import Judged, evaluated, judged
from d5ray.networks.executors.executor import Evaluation, Executor, FlatExecutor
from d5ray.networks.executors.flat_buffers import FlatBuffers
from d5ray.networks.executors.gradient_buckets import OnReady
from d5ray.networks.executors.labelled_network import LabelledNetwork
from d5ray.networks.layers.layer_shapes import Shape
from d5ray.networks.network import Network
from d5ray.operators.loss import Loss

if TYPE_CHECKING:
    from d5ray.frameworks.arrays.executor import ArrayExecutor
    from d5ray.frameworks.tensorflow.graph_executor import TensorFlowGraphExecutor

    Bindable = ArrayExecutor | TensorFlowGraphExecutor

Array = np.ndarray[Any, Any]


@final
class LabelledExecutor(Executor):
    """Flat parameters, gradients and state of the array library; the network's tensors are bound to views."""

    def __init__(
        self, executor: "Bindable", labelled: LabelledNetwork, loss: Loss, library: ArrayLibrary
    ) -> None:
        self.inner, self.labelled, self.loss = executor, labelled, loss
        network = labelled.network
        trained = {name: network.parameters[name] for name in executor.trained}
        if not trained:
            raise ConfigurationError(
                "the network has no parameters to train: give it at least one node with weights"
            )
        self._type = network.inputs[labelled.inputs].dtype
        self._label_type = network.inputs[labelled.labels].dtype
        self._hold(FlatBuffers(trained, network.state_values, library, self._type))

    def inference(self, inputs: Array) -> Array:
        given = {self.labelled.inputs: inputs.astype(self._type, copy=False)}
        return self.inner.inference(given)[self.labelled.scores]

    def inference_and_backprop(self, inputs: Array, labels: Array, on_ready: OnReady | None = None) -> float:
        own = self.labelled
        given = {
            own.inputs: inputs.astype(self._type, copy=False),
            own.labels: labels.astype(self._label_type, copy=False),
        }
        forward, backward = self.inner.forward_ns, self.inner.backward_ns
        if on_ready is None:
            outputs = self.inner.inference_and_backprop(given, own.loss)
            elsewhere = 0
        else:
            outputs, elsewhere = self._announcing(given, on_ready)
        self.forward_ns += self.inner.forward_ns - forward
        self.backward_ns += self.inner.backward_ns - backward - elsewhere
        return float(outputs[own.loss].reshape(()))

    def _announcing(self, given: Mapping[str, Array], on_ready: OnReady) -> tuple[dict[str, Array], int]:
        """A training pass that reports each gradient when it is there; with the time spent in on_ready."""
        announcer = self._announcer(on_ready)
        places = {slot.name: place for place, slot in enumerate(self.slots)}
        self.inner.on_gradient = lambda name: announcer.arrived(places[name])
        try:
            outputs = self.inner.inference_and_backprop(given, self.labelled.loss)
        finally:
            self.inner.on_gradient = None
        within = announcer.nanoseconds
        announcer.finish()
        return outputs, within

    def evaluate(self, inputs: Array, labels: Array) -> Evaluation:
        def judge(given: Array, truth: Array) -> Judged:
            return judged(self.loss, self.inference(given), truth)

        return evaluated(judge, self.loss, inputs, labels)

    def random_state(self) -> Array:
        return np.array([self.inner.passes()], np.int64).view(np.uint8)

    def set_random_state(self, state: Array) -> None:
        self.inner.go_on_from(int(np.array(state).view(np.int64)[0]))

    def draw_from(self, seed: int, rank: int) -> None:
        first = int(np.random.SeedSequence([seed, rank]).generate_state(1, np.uint64)[0])
        self.inner.draw_from(first)

    def _hold(self, holder: FlatBuffers | FlatExecutor) -> None:
        super()._hold(holder)
        flat = self._flat
        self.inner.bind(flat.parameter_views, flat.gradient_views, flat.state_views)


def labelled_executor(
    make: "Callable[[Network], Bindable]",
    library: ArrayLibrary,
    model: Any,
    options: Mapping[str, Any],
    sample_shape: Shape,
    classes: int,
    loss: Loss,
    seed: int,
    precision: str = "float32",
) -> LabelledExecutor:
    """The executor of a model that agents train, after a trial of two samples whose output must fit the loss.

    make: gives the executor of the model's Network, with its loss. precision: "float64" widens the network.
    """
    own = labelled_network(model, dict(options), sample_shape, classes, loss, seed=seed)
    if precision == "float64":
        own = replace(own, network=own.network.in_float64())
    made = LabelledExecutor(make(own.network), own, loss, library)
    made.draw_from(seed, rank=0)
    probe = np.zeros((2, *sample_shape), np.float32)
    try:
        output = made.inference(probe)
    except (ValueError, TypeError, IndexError, RuntimeError) as error:
        if type(error).__module__.startswith("cupy"):  # CUDA's errors say nothing of samples
            raise
        raise ConfigurationError(
            f"the network does not take samples of shape {sample_shape}: {error}"
        ) from error
    loss.check(output.shape, classes)
    return made
