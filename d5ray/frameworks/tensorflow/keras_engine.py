"""Engine that moves a flat buffer by an optimizer of Keras, and makes plain data of its state"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import numpy as np

from d5ray.errors import ConfigurationError, nearest
from d5ray.frameworks.host import Flat, host_view, on_device
from d5ray.ops.tensorflow.library import tf
from d5ray.training.optimizers.native import Engine, NativeOptimizer, Settings
from d5ray.training.optimizers.optimizer import Slots

# Of keras.optimizers: they treat every element by itself, so that the flat buffer can be one tensor.
ELEMENTWISE: Final = frozenset(
    ("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "Ftrl", "Lion", "Nadam", "RMSprop", "SGD")
)
RATE = "learning_rate"
Made = tf.keras.optimizers.Optimizer


@final
class KerasEngine(Engine):
    """The optimizer, with a variable for each tensor of x (n,): written before a step, and read after it."""

    def __init__(
        self, rule: NativeOptimizer, x: Any, slots: Slots, remembered: Mapping[str, Any] | None
    ) -> None:
        flat = _in_host_memory(rule, x)
        self.rule, self._slots = rule, slots
        self._optimizer = made(rule)
        self._variables = [tf.keras.Variable(view, name=f"tensor_{at}") for at, view in self._parts(flat)]
        self._optimizer.build(self._variables)
        self._settings = rule.made_with
        self._step = self._traced()
        if remembered is not None:
            self._go_on_with(remembered["variables"])

    def step(self, x: Any, gradient: Any, settings: Settings) -> None:
        if settings != self._settings:
            self._change(settings)
        flat = _in_host_memory(self.rule, x)
        moved = self._step(
            [view for _, view in self._parts(flat)],
            [view for _, view in self._parts(_in_host_memory(self.rule, gradient))],
        )
        for (_, own), new in zip(self._parts(flat), moved, strict=True):
            own[...] = new.numpy()

    def remembered(self) -> dict[str, Any]:
        return {"variables": [np.asarray(variable.numpy()) for variable in self._optimizer.variables]}

    def _parts(self, flat: Flat) -> Sequence[tuple[int, Flat]]:
        """The tensors, as views of a flat array."""
        if not self._slots:
            return [(0, flat)]
        return [
            (at, flat[slot.offset : slot.offset + slot.size].reshape(slot.shape))
            for at, slot in enumerate(self._slots)
        ]

    def _traced(self) -> Any:
        """One step as a graph, for the settings that the optimizer has now."""
        optimizer, variables = self._optimizer, self._variables

        def step(values: Any, gradients: Any) -> Any:
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)
            optimizer.apply(gradients, variables)
            return [tf.convert_to_tensor(variable) for variable in variables]

        return tf.function(step, autograph=False)

    def _change(self, settings: Settings) -> None:
        """Other settings from now on; all but the learning rate are numbers in the graph."""
        before, self._settings = self._settings, settings
        changed = {name: value for name, value in settings.items() if before.get(name) != value}
        if RATE in changed:
            self._optimizer.learning_rate = changed.pop(RATE)
        for name, value in changed.items():
            setattr(self._optimizer, name, value)
        if changed:
            self._step = self._traced()

    def _go_on_with(self, remembered: Sequence[Any]) -> None:
        own = self._optimizer.variables
        shapes = [tuple(np.shape(value)) for value in remembered]
        if shapes != [tuple(variable.shape) for variable in own]:
            raise ConfigurationError(
                f"the optimizer's state is of {len(remembered)} arrays, here are {len(own)}, or their shapes "
                "are others: it is of another model"
            )
        rate = self._optimizer.learning_rate
        for variable, value in zip(own, remembered, strict=True):
            if variable is not rate:  # it is a setting, which the next step brings
                variable.assign(np.asarray(value))


def is_elementwise(rule: Any) -> bool:
    """True if the rule is one of `keras.optimizers` that treats every element by itself."""
    if isinstance(rule, str):
        rule = _named(rule)
    return rule in {kind for name, kind in _classes().items() if name in ELEMENTWISE}


def tried(rule: NativeOptimizer) -> dict[str, Any]:
    """The numbers of an optimizer's configuration, after a step on a small matrix; raises what is wrong."""
    optimizer = made(rule)
    variable = tf.keras.Variable(np.ones((2, 2), np.float32))
    try:
        optimizer.apply([tf.constant([[0.5, -1.0], [2.0, 0.25]])], [variable])
    except Exception as error:
        raise ConfigurationError(f"{rule!r} cannot do a step: {error}") from error
    given = {name: value for name, value in optimizer.get_config().items() if _is_number(value)}
    if RATE in given and RATE in rule.made_with:
        given[RATE] = rule.made_with[RATE]  # to the last bit
    return given


def made(rule: NativeOptimizer) -> Any:
    """The optimizer, which knows no variables yet."""
    kind = _named(rule.rule) if isinstance(rule.rule, str) else rule.rule
    if not (inspect.isclass(kind) and issubclass(kind, Made)):
        raise ConfigurationError(
            f"{rule.rule!r} is no optimizer: give the name of a class of keras.optimizers, or a class "
            "derived from keras.optimizers.Optimizer"
        )
    try:
        return kind(**rule.made_with)
    except Exception as error:
        raise ConfigurationError(f"{rule!r} cannot be made: {error}") from error


def _classes() -> dict[str, Any]:
    return {
        name: kind
        for name, kind in vars(tf.keras.optimizers).items()
        if inspect.isclass(kind) and issubclass(kind, Made) and kind is not Made
    }


def _named(name: str) -> Any:
    classes = {word.lower(): kind for word, kind in _classes().items()}
    if name.lower() not in classes:
        raise ConfigurationError(f"keras.optimizers has no optimizer {name!r}: {nearest(name, _classes())}")
    return classes[name.lower()]


def _in_host_memory(rule: NativeOptimizer, array: Any) -> Flat:
    if on_device(array):
        raise ConfigurationError(
            f"{rule!r} works on arrays in host memory, found one on a device: choose TorchOptimizer, or an "
            "update rule of d5ray"
        )
    if isinstance(array, np.ndarray):
        return array
    return host_view(array)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
