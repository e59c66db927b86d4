"""The executor that agents train a Keras model with: its variables lie in flat buffers in host memory"""

from time import perf_counter_ns
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.frameworks.numpy.library import NumPy
from d5ray.frameworks.tensorflow.keras_models import named
from d5ray.frameworks.tensorflow.losses import compared, scores_of
from d5ray.networks.executors.evaluation import evaluated, samples_at_once
from d5ray.networks.executors.executor import Evaluation, Executor
from d5ray.networks.executors.flat_buffers import FlatBuffers
from d5ray.networks.executors.gradient_buckets import OnReady
from d5ray.networks.executors.graph_executor import PASS_APART
from d5ray.networks.executors.trees import is_inner, mapped
from d5ray.operators.loss import Loss
from d5ray.ops.tensorflow.library import tf

Array = np.ndarray[Any, Any]
Tensor = Any  # of TensorFlow


@final
class KerasExecutor(Executor):
    """Calls the model with parameters and state from the buffers, and leaves its own variables as they are.

    So one model may serve several executors. What its layers draw depends on the seed, the agent and the
    pass. Penalties of the model, such as a layer's `kernel_regularizer`, are part of the loss in training.
    """

    def __init__(self, model: Any, loss: Loss, where: str) -> None:
        self.model, self.loss, self._where = model, loss, where
        paths = {id(variable): path for path, variable in named(model).items()}
        trained = {paths[id(each)]: np.array(each.numpy()) for each in model.trainable_variables}
        if not trained:
            raise ConfigurationError(
                f"the model {model.name!r} has no weights to train: give it a layer with some, and set "
                "trainable=True"
            )
        self._others = [(variable, paths.get(id(variable))) for variable in model.non_trainable_variables]
        others = {path: np.array(variable.numpy()) for variable, path in self._others if path is not None}
        floating = {path: value for path, value in others.items() if value.dtype.kind == "f"}
        counters = {path: value for path, value in others.items() if path not in floating}
        self._counters = counters
        self._hold(FlatBuffers(trained, floating, NumPy(), counters=counters))
        self._first_seed = 0  # of what the model draws in training,
        self._passes = 0  # the passes until now
        self._train = tf.function(self._training, reduce_retracing=True)
        self._evaluate = tf.function(self._judging, reduce_retracing=True)
        self._infer = tf.function(self._scoring, reduce_retracing=True)

    def draw_from(self, seed: int, rank: int) -> None:
        self._passes = 0
        self._first_seed = int(np.random.SeedSequence([seed, rank]).generate_state(1, np.uint64)[0])

    def random_state(self) -> Array:
        return np.array([self._passes], np.int64).view(np.uint8)

    def set_random_state(self, state: Array) -> None:
        self._passes = int(np.array(state).view(np.int64)[0])

    def inference(self, inputs: Array) -> Array:
        with tf.device(self._where):
            found: Array = self._infer(*self._held(), self._tensors(inputs)).numpy()
        return found

    def inference_and_backprop(self, inputs: Array, labels: Array, on_ready: OnReady | None = None) -> float:
        self._passes += 1
        begin = perf_counter_ns()
        with tf.device(self._where):
            loss, gradients, others = self._train(*self._held(), self._tensors(inputs), tf.constant(labels))
        for name, gradient in zip(self._flat.gradient_views, gradients, strict=True):
            self._flat.gradient_views[name][...] = gradient.numpy()
        self._keep(others)
        # One graph has both passes: their share is not measured, and the usual one is assumed.
        spent = perf_counter_ns() - begin
        self.forward_ns += spent // 3
        self.backward_ns += spent - spent // 3
        if on_ready is not None:
            self._announcer(on_ready).finish()
        return float(loss)

    def evaluate(self, inputs: Array, labels: Array) -> Evaluation:
        counted = labels.size if self.loss.classifies else len(labels)
        return evaluated(self._judged, self.loss, inputs, labels, samples_at_once(inputs, counted))

    @property
    def _flat(self) -> FlatBuffers:
        assert isinstance(self._holder, FlatBuffers)
        return self._holder

    def _judged(self, inputs: Array, labels: Array) -> tuple[float, int]:
        with tf.device(self._where):
            loss, right = self._evaluate(*self._held(), self._tensors(inputs), tf.constant(labels))
        return float(loss), int(right)

    def _held(self) -> tuple[list[Tensor], list[Tensor]]:
        """The values of the variables, as the model lists them, from the buffers."""
        flat = self._flat
        trained = [tf.convert_to_tensor(view) for view in flat.parameter_views.values()]
        return trained, [self._other(place, each, path) for place, (each, path) in enumerate(self._others)]

    def _other(self, place: int, variable: Any, path: str | None) -> Tensor:
        if path is None:
            first = (self._first_seed + self._passes * PASS_APART) % 2**64
            drawn = np.random.SeedSequence([first, place]).generate_state(int(np.prod(variable.shape)))
            return tf.constant((drawn >> 1).reshape(variable.shape), variable.dtype)
        held = self._counters if path in self._counters else self._flat.state_views
        return tf.convert_to_tensor(held[path])

    def _keep(self, others: list[Tensor]) -> None:
        for (_, path), value in zip(self._others, others, strict=True):
            if path is not None:
                held = self._counters if path in self._counters else self._flat.state_views
                held[path][...] = value.numpy()

    def _training(self, trained: Any, others: Any, inputs: Any, labels: Tensor) -> Any:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(trained)
            with self._holding(trained, others) as scope:
                loss = compared(self.loss, self.model(inputs, training=True), labels)
                for penalty in self.model.losses:
                    loss += tf.cast(penalty, loss.dtype)
                new = [scope.get_current_value(variable) for variable, _ in self._others]
        zero = tf.UnconnectedGradients.ZERO
        found = tape.gradient(loss, trained, unconnected_gradients=zero)
        return loss, [tf.convert_to_tensor(gradient) for gradient in found], new

    def _judging(self, trained: Any, others: Any, inputs: Any, labels: Tensor) -> Any:
        with self._holding(trained, others):
            output = self.model(inputs, training=False)
        loss = compared(self.loss, output, labels)
        if not self.loss.classifies:
            return loss, tf.constant(0, tf.int64)
        right = tf.argmax(scores_of(output), axis=self.loss.classes_axis) == tf.cast(labels, tf.int64)
        if self.loss.ignored is not None:
            right &= labels != self.loss.ignored
        return loss, tf.math.count_nonzero(right)

    def _scoring(self, trained: Any, others: Any, inputs: Any) -> Any:
        with self._holding(trained, others):
            return scores_of(self.model(inputs, training=False))

    def _holding(self, trained: Any, others: Any) -> Any:
        """Let the model read these values for its variables, and write others beside them."""
        variables = [*self.model.trainable_variables, *(variable for variable, _ in self._others)]
        mapping = list(zip(variables, [*trained, *others], strict=True))
        return tf.keras.StatelessScope(state_mapping=mapping, collect_losses=True)

    def _tensors(self, inputs: Any) -> Any:
        found = mapped(tf.convert_to_tensor, inputs) if is_inner(inputs) else tf.convert_to_tensor(inputs)
        return list(found) if isinstance(found, tuple) else found
