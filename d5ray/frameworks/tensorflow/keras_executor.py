"""The executor that agents train a Keras model with: its variables lie in flat buffers in host memory"""

from collections import defaultdict
from functools import partial
from time import perf_counter_ns
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.frameworks.arrays.library import NumPy
from d5ray.frameworks.tensorflow.keras_models import named
from d5ray.frameworks.tensorflow.losses import compared, scores_of
from d5ray.networks.executors.evaluation import Judged, evaluated
from d5ray.networks.executors.executor import Evaluation, Executor
from d5ray.networks.executors.flat_buffers import FlatBuffers
from d5ray.networks.executors.gradient_buckets import OnReady
from d5ray.networks.executors.graph_executor import PASS_APART
from d5ray.networks.executors.model_calls import checked_weight
from d5ray.networks.executors.trees import is_inner, mapped
from d5ray.operators.loss import Loss
from d5ray.ops.tensorflow.library import tf
from d5ray.training.arrays import NO_GRADIENT

Array = np.ndarray[Any, Any]
Tensor = Any  # of TensorFlow


@final
class KerasExecutor(Executor):
    """Calls the model with parameters and state from the buffers, and leaves its own variables as they are.

    So one model may serve several executors. What its layers draw depends on the seed, the agent and the
    pass. Penalties of the model, such as a layer's `kernel_regularizer`, are part of the loss in training.
    What is trained is fixed when the executor is made, as it is by `compile`.
    """

    def __init__(self, model: Any, loss: Loss, where: str) -> None:
        self.model, self.loss, self._where, self.weighs = model, loss, where, loss.weighted
        paths = {id(variable): path for path, variable in named(model).items()}
        self._trained = list(model.trainable_variables)
        trained = {paths[id(each)]: np.array(each.numpy()) for each in self._trained}
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
        self._holder_of_parameters = ""  # who does not learn what the model assigns
        self._first_seed = 0  # of what the model draws in training,
        self._passes: int = 0  # the passes until now
        self._parts = [*model._flatten_layers(), *self._trained, *model.non_trainable_variables]
        self._fixed = self._trainable()
        as_function = getattr(model, "run_eagerly", False) is not True
        graph = partial(tf.function, reduce_retracing=True) if as_function else lambda function: function
        self._train, self._evaluate, self._infer = map(graph, (self._training, self._judging, self._scoring))

    def draw_from(self, seed: int, rank: int) -> None:
        self._passes = 0
        self._first_seed = int(np.random.SeedSequence([seed, rank]).generate_state(1, np.uint64)[0])

    def forbid_adopting(self, holder: str) -> None:
        self._holder_of_parameters = holder

    def inference(self, inputs: Array) -> Array:
        with tf.device(self._where):
            found: Array = self._infer(*self._held(), self._tensors(inputs)).numpy()
        return found

    def inference_and_backprop(self, inputs: Array, labels: Array, on_ready: OnReady | None = None) -> float:
        if self._trainable() != self._fixed:
            raise self._changed()
        self._passes += 1
        begin = perf_counter_ns()
        with tf.device(self._where):
            given = self._held(), self._tensors(inputs), tf.constant(labels)
            loss, weight, gradients, others, assigned = self._train(*given[0], *given[1:])
        self.weight = None if weight is None else checked_weight(self.loss, weight, 0.0)
        self._adopt(assigned)
        views = self._flat.gradient_views.values()
        for view, gradient in zip(views, gradients, strict=True):
            view[...] = NO_GRADIENT if gradient is None else gradient.numpy()
        self.unused = tuple([slot for slot, each in zip(self.slots, gradients, strict=True) if each is None])
        self._keep(others)
        # One graph has both passes: their share is not measured, and the usual one is assumed.
        spent = perf_counter_ns() - begin
        self.forward_ns += spent // 3
        self.backward_ns += spent - spent // 3
        if on_ready is not None:
            self._announcer(on_ready).finish()
        return float(loss)

    def evaluate(self, inputs: Array, labels: Array) -> Evaluation:
        return evaluated(self._judged, self.loss, inputs, labels)

    def draws(self) -> list[tuple[Any, Array]]:
        """The model's seeds, and the values with which the next training pass draws."""
        seeds = [(place, variable) for place, (variable, path) in enumerate(self._others) if path is None]
        return [(variable, self._drawn(place, variable, self._passes + 1)) for place, variable in seeds]

    def _trainable(self) -> list[bool]:
        return [part.trainable for part in self._parts]

    def _changed(self) -> ConfigurationError:
        pairs = zip(self._parts, self._trainable(), self._fixed, strict=True)
        part, now = next((part, now) for part, now, before in pairs if now != before)
        return ConfigurationError(
            f"{part.path!r} of the model {self.model.name!r} got trainable={now} in training, and what is "
            "trained is fixed at its start, as by compile: set it before, and train on from the trained "
            "model in another experiment"
        )

    def _judged(self, inputs: Array, labels: Array) -> Judged:
        with tf.device(self._where):
            loss, right, weight = self._evaluate(*self._held(), self._tensors(inputs), tf.constant(labels))
        return float(loss), int(right), None if weight is None else float(weight)

    def _held(self) -> tuple[list[Tensor], list[Tensor]]:
        """The values of the variables, as the model lists them, from the buffers."""
        state = {**self._flat.state_views, **self._counters}
        trained = [tf.convert_to_tensor(view) for view in self._flat.parameter_views.values()]
        others = [
            tf.constant(self._drawn(place, variable, self._passes), variable.dtype)
            if path is None
            else tf.convert_to_tensor(state[path])
            for place, (variable, path) in enumerate(self._others)
        ]
        return trained, others

    def _drawn(self, place: int, variable: Any, passes: int) -> Array:
        """The seed that a variable has in a pass."""
        first = (self._first_seed + passes * PASS_APART) % 2**64
        drawn = np.random.SeedSequence([first, place]).generate_state(int(np.prod(variable.shape)))
        return (drawn >> 1).reshape(variable.shape)

    def _keep(self, others: list[Tensor]) -> None:
        state = {**self._flat.state_views, **self._counters}
        for (_, path), value in zip(self._others, others, strict=True):
            if path is not None:
                state[path][...] = value.numpy()

    def _training(self, trained: Any, others: Any, inputs: Any, labels: Tensor) -> Any:
        with tf.GradientTape(watch_accessed_variables=False, persistent=True) as tape:
            tape.watch(trained)
            with self._holding(trained, others, tape) as scope:
                loss, weight = compared(self.loss, self.model(inputs, training=True), labels)
                for penalty in self.model.losses:
                    loss += tf.cast(penalty, loss.dtype)
                new = [scope.get_current_value(variable) for variable, _ in self._others]
        values = [
            [value, *scope.assigned[id(each)]] for each, value in zip(self._trained, trained, strict=True)
        ]
        found = [_sum(tape.gradient(loss, each)) for each in values]
        return loss, weight, found, new, [each[-1] if len(each) > 1 else None for each in values]

    def _judging(self, trained: Any, others: Any, inputs: Any, labels: Tensor) -> Any:
        with self._holding(trained, others):
            output = self.model(inputs, training=False)
        loss, weight = compared(self.loss, output, labels)
        if not self.loss.classifies:
            return loss, tf.constant(0, tf.int64), weight
        right = tf.argmax(scores_of(output), axis=self.loss.classes_axis) == tf.cast(labels, tf.int64)
        if self.loss.ignored is not None:
            right &= labels != self.loss.ignored
        return loss, tf.math.count_nonzero(right), weight

    def _scoring(self, trained: Any, others: Any, inputs: Any) -> Any:
        with self._holding(trained, others):
            return scores_of(self.model(inputs, training=False))

    def _holding(self, trained: Any, others: Any, tape: Any = None) -> Any:
        """Let the model read these values for its variables, and write others beside them."""
        variables = [*self._trained, *(variable for variable, _ in self._others)]
        return _Scope(list(zip(variables, [*trained, *others], strict=True)), tape)

    def _adopt(self, assigned: list[Tensor | None]) -> None:
        """Take over the values that the model itself has given to variables that are trained."""
        views = self._flat.parameter_views.items()
        for (name, view), value in zip(views, assigned, strict=True):
            if value is not None and self._holder_of_parameters:
                raise ConfigurationError(
                    f"the model {self.model.name!r} assigns {name!r} in its call, and "
                    f"{self._holder_of_parameters} hold the parameters, which do not learn of it: leave that "
                    "out, or choose a distributed optimizer without them, such as AllreduceSGD"
                )
            if value is not None:
                view[...] = value.numpy()

    def _tensors(self, inputs: Any) -> Any:
        found = mapped(tf.convert_to_tensor, inputs) if is_inner(inputs) else tf.convert_to_tensor(inputs)
        return list(found) if isinstance(found, tuple) else found


class _Scope(tf.keras.StatelessScope):  # type: ignore[misc]
    """Values of a model's variables, and those that its own code assigns: as in variables, no gradient flows
    through an assignment, and what is read afterwards has one."""

    def __init__(self, mapping: list[tuple[Any, Tensor]], tape: Any) -> None:
        super().__init__(state_mapping=mapping, collect_losses=True)
        self.assigned: dict[int, list[Tensor]] = defaultdict(list)
        self._tape = tape

    def add_update(self, update: tuple[Any, Tensor]) -> None:
        variable, value = update
        value = tf.stop_gradient(value)
        if self._tape is not None and value.dtype.is_floating:
            self._tape.watch(value)
        self.assigned[id(variable)].append(value)
        super().add_update((variable, value))


def _sum(gradients: list[Tensor | None]) -> Tensor | None:
    """The sum of those that are there, as a tensor."""
    there = [tf.convert_to_tensor(each) for each in gradients if each is not None]
    return tf.add_n(there) if there else None
