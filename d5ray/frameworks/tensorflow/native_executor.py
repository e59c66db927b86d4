"""A Keras model with the two methods of a GraphExecutor: called as it is, within a tf.function"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, final

from d5ray.errors import ConfigurationError
from d5ray.frameworks.tensorflow.keras_models import named
from d5ray.frameworks.tensorflow.library import TensorFlow
from d5ray.frameworks.tensorflow.losses import of_scores
from d5ray.networks.device import Device
from d5ray.networks.events.event import GraphEvent
from d5ray.networks.executors.graph_executor import Array, Arrays, check_one_number
from d5ray.networks.executors.native_executor import LABELS, NativeExecutor, named_outputs, the_loss
from d5ray.operators.loss import Loss
from d5ray.ops.tensorflow.library import tf


@final
class KerasNativeExecutor(NativeExecutor):
    """The model itself. Its one input is called "input"; several have the names that Keras gives them."""

    def __init__(
        self, model: Any, loss: Loss | None, device: Device, events: GraphEvent | Sequence[GraphEvent]
    ) -> None:
        if not hasattr(model, "trainable_variables") or not callable(model):
            raise ConfigurationError(
                f"the model is a {type(model).__name__}: give a Keras model, or use the framework torch"
            )
        self.model = model
        library = TensorFlow(device)
        self._where = library.where
        self._functions: dict[str | None, Any] = {}
        super().__init__(_names_of_inputs(model), library, loss, events)
        self._names: dict[int, str] = {}
        self._variables: dict[str, Any] = {}
        self._traced: tuple[str, ...] = ()  # the trained variables, when the functions were made

    @property
    def trained(self) -> tuple[str, ...]:
        self._tensors()
        return tuple(self._names[id(variable)] for variable in self.model.trainable_variables)

    def _tensors(self) -> dict[str, Any]:
        """The variables, which a model may make when it is called first: by path, or by layers."""
        if len(self._names) == len(self.model.variables):
            return self._variables
        paths = Counter(variable.path for variable in self.model.variables)
        for variable in self.model.variables:
            name = variable.path
            if paths[name] > 1:
                name = next(each for each, own in named(self.model).items() if own is variable)
            self._names[id(variable)] = name
            self._variables[name] = variable
        return self._variables

    def _run(self, inputs: Arrays, loss: str | None) -> dict[str, Any]:
        if self.trained != self._traced:
            self._functions, self._traced = {}, self.trained
        function = self._functions.get(loss)
        if function is None:
            made = self._inference if loss is None else self._training(loss)
            function = self._functions[loss] = tf.function(made, reduce_retracing=True)
        names = (*self.inputs, LABELS) if loss is not None and LABELS in inputs else self.inputs
        with tf.device(self._where):
            outputs, gradients = function({name: tf.convert_to_tensor(inputs[name]) for name in names})
        if loss is not None:
            self._gradients = dict(zip(self.trained, gradients, strict=True))
            check_one_number(loss, outputs[loss].shape)
        return dict(outputs)

    def _inference(self, inputs: dict[str, Any]) -> Any:
        return named_outputs(self._called(inputs, False), tf.is_tensor), []

    def _training(self, loss: str) -> Any:
        def train(inputs: dict[str, Any]) -> Any:
            with tf.GradientTape() as tape:
                outputs = named_outputs(self._called(inputs, True), tf.is_tensor)
                compare = None
                if self.loss is not None and LABELS in inputs:
                    compare = lambda scores: of_scores(self.loss, scores, inputs[LABELS])  # noqa: E731
                outputs[loss] = the_loss(outputs, loss, compare)
                for penalty in self.model.losses:
                    outputs[loss] += tf.cast(penalty, outputs[loss].dtype)
            variables = [variable.value for variable in self.model.trainable_variables]
            zero = tf.UnconnectedGradients.ZERO
            found = tape.gradient(outputs[loss], variables, unconnected_gradients=zero)
            return outputs, [tf.convert_to_tensor(gradient) for gradient in found]

        return train

    def _called(self, inputs: dict[str, Any], training: bool) -> Any:
        given = [inputs[name] for name in self.inputs]
        return self.model(given[0] if len(given) == 1 else given, training=training)

    def _assign(self, tensor: Any, value: Array) -> None:
        tensor.assign(value)


def _names_of_inputs(model: Any) -> tuple[str, ...]:
    found = getattr(model, "inputs", None) or ()
    return tuple(each.name for each in found) if len(found) > 1 else ("input",)
