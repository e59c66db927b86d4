"""The level-1 executor of JAX: a model as a pure function, with flat buffers of NumPy around it"""

from collections.abc import Mapping
from time import perf_counter_ns
from typing import Any, final

import jax
import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.frameworks.arrays.library import NumPy
from d5ray.frameworks.jax.library import Computing
from d5ray.frameworks.jax.losses import OF_CLASSES
from d5ray.frameworks.jax.model import OpenedModel
from d5ray.frameworks.jax.passes import passes_of
from d5ray.frameworks.jax.tree_layout import is_trained
from d5ray.networks.executors.evaluation import Judged, evaluated
from d5ray.networks.executors.executor import Evaluation, Executor
from d5ray.networks.executors.flat_buffers import FlatBuffers
from d5ray.networks.executors.gradient_buckets import OnReady
from d5ray.networks.executors.model_calls import checked_weight
from d5ray.networks.executors.trees import mapped, unpacked
from d5ray.operators.loss import Loss

Array = np.ndarray[Any, Any]
MOST_PASSES = 2**32  # that have random numbers of their own


@final
class JaxExecutor(Executor):
    """Runs a model of Flax, Equinox, or functions of parameters; nothing is converted.

    Parameters, gradients and state lie in host memory, and are copied in every pass. A training pass is one
    program, of whose time the forward pass is taken to be a third.
    """

    def __init__(
        self, opened: OpenedModel, loss: Loss, computing: Computing, precision: str, classes: int
    ) -> None:
        self.model, self.loss, self.weighs = opened.model, loss, loss.weighted
        self._computing, self._classes = computing, classes
        self._floats = np.float64 if precision == "float64" else None
        self._passes_of = passes_of(opened.model, loss, precision)
        trained = {name: self._own(value) for name, value in opened.trained.items()}
        if not trained:
            raise ConfigurationError(
                "the model has no parameters to train: give it at least one layer with weights"
            )
        state = {name: self._own(value) for name, value in opened.state.items()}
        floating = {name: value for name, value in state.items() if is_trained(value)}
        counters = {name: value for name, value in state.items() if name not in floating}
        self._hold(FlatBuffers(trained, floating, NumPy(), counters=counters))
        self._seed: Array = np.zeros(2, np.uint32)  # of what the network draws in training,
        self._passes: int = 0  # the passes until now

    def draw_from(self, seed: int, rank: int) -> None:
        self._passes = 0
        self._seed = np.random.SeedSequence([seed, rank]).generate_state(2, np.uint32)

    def output_shape(self, inputs: Any) -> tuple[int, ...]:
        """The shape of the scores for such inputs, of which nothing is computed."""
        with self._computing():
            found = jax.eval_shape(
                self._passes_of.infer, self._trained, self.state_arrays(), self._given(inputs)
            )
        if self._floats is not None and found.dtype != np.float64:
            raise ConfigurationError(
                f"precision is 'float64', and the model gives {found.dtype}: some part of it computes in a "
                "type of its own, such as by dtype=jnp.float32: leave that out"
            )
        return tuple(found.shape)

    def inference(self, inputs: Array) -> Array:
        with self._computing():
            return np.array(self._passes_of.infer(self._trained, self.state_arrays(), self._given(inputs)))

    def inference_and_backprop(self, inputs: Array, labels: Array, on_ready: OnReady | None = None) -> float:
        self._check_labels(labels)
        self._passes += 1
        begin = perf_counter_ns()
        state = self.state_arrays()
        with self._computing():
            loss, weight, gradients, after = self._passes_of.train(
                self._trained,
                state,
                self._seed,
                np.uint32(self._passes % MOST_PASSES),
                self._given(inputs),
                self._given(unpacked(labels)),
            )
            for name, view in self._flat.gradient_views.items():
                view[...] = gradients[name]
            for name, value in after.items():
                state[name][...] = value
            number = float(loss)
            self.weight = None if weight is None else checked_weight(self.loss, weight, number)
        spent = perf_counter_ns() - begin
        self.forward_ns += spent // 3
        self.backward_ns += spent - spent // 3
        if on_ready is not None:
            self._announcer(on_ready).finish()
        return number

    def evaluate(self, inputs: Array, labels: Array) -> Evaluation:
        self._check_labels(labels)
        return evaluated(self._judged, self.loss, inputs, labels)

    def _judged(self, inputs: Array, labels: Array) -> Judged:
        with self._computing():
            given, truth = self._given(inputs), self._given(unpacked(labels))
            loss, right, weight = self._passes_of.judge(self._trained, self.state_arrays(), given, truth)
            return float(loss), int(right), None if weight is None else float(weight)

    @property
    def _trained(self) -> Mapping[str, Array]:
        return self._flat.parameter_views

    def _own(self, value: Any) -> Array:
        """A first value in host memory, in the precision of the executor."""
        array = np.array(value)
        return array.astype(self._floats) if self._floats is not None and is_trained(array) else array

    def _given(self, tree: Any) -> Any:
        """Samples or labels as the model takes them."""
        return tree if self._floats is None else mapped(self._own_type, tree)

    def _own_type(self, array: Array) -> Array:
        return array.astype(self._floats) if array.dtype.kind == "f" else array

    def _check_labels(self, labels: Any) -> None:
        """Raise `ConfigurationError` for the number of a class that there is not; JAX would compute on."""
        if not isinstance(self.loss, OF_CLASSES):
            return
        wrong = (labels < 0) | (labels >= self._classes)
        if self.loss.ignored is not None:
            wrong &= labels != self.loss.ignored
        if wrong.any():
            place = np.argwhere(wrong)[0].tolist()
            raise ConfigurationError(
                f"the label {labels[tuple(place)]} of sample {place[0]} of a batch is none of "
                f"{self._classes} classes, 0 to {self._classes - 1}: correct the data set, or its classes"
            )
