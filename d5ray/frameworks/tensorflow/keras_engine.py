"""Engine that moves a flat buffer by an optimizer of Keras, and makes plain data of its state"""

import inspect
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.frameworks.host import Flat
from d5ray.frameworks.host_engine import RATE, HostEngine, check_state
from d5ray.ops.tensorflow.library import tf
from d5ray.training.optimizers.native import NativeOptimizer, Settings, classes_in, is_number, named
from d5ray.training.optimizers.optimizer import Slots

# Of keras.optimizers: they treat every element by itself, so that the flat buffer can be one tensor.
ELEMENTWISE: Final = frozenset(
    ("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "Ftrl", "Lion", "Nadam", "RMSprop", "SGD")
)
EXCLUDED: Final = "exclude_from_weight_decay"  # a method of Keras's optimizers, here a setting
SCALE: Final = "loss_scale_factor"
REFUSED: Final = {
    "LossScaleOptimizer": "divides gradients by a scale that nobody has multiplied the loss with: give the "
    "optimizer that it holds, and precision='bfloat16', which needs no scale",
    "MultiOptimizer": "holds optimizers, one for some layers each: give one for all, such as 'AdamW' with "
    "exclude_from_weight_decay",
}
Made = tf.keras.optimizers.Optimizer


@final
class KerasEngine(HostEngine):
    """The optimizer, with a variable for each tensor of x (n,): written before a step, and read after it."""

    def __init__(
        self, rule: NativeOptimizer, x: Any, slots: Slots, remembered: Mapping[str, Any] | None
    ) -> None:
        super().__init__(rule, slots)
        views = self._parts(self._flat(x))
        self._optimizer = made(rule)
        self._variables = [_variable(name, view) for name, view in zip(self._names, views, strict=True)]
        self._optimizer.build(self._variables)
        self._steps: dict[tuple[int, ...], Any] = {}  # by the tensors that have a gradient
        if remembered is not None:
            self._go_on_with(remembered["variables"])

    def step(self, x: Any, gradient: Any, settings: Settings) -> None:
        self._move(x, gradient, settings, tuple(range(len(self._variables))))

    def step_without(self, x: Any, gradient: Any, settings: Settings, unused: Slots) -> bool:
        absent = {slot.offset for slot in unused}
        used = tuple([at for at, slot in enumerate(self._slots) if slot.offset not in absent])
        if len(used) + len(unused) != len(self._slots):
            return False
        if used:
            self._move(x, gradient, settings, used)
        return True

    def _move(self, x: Any, gradient: Any, settings: Settings, used: tuple[int, ...]) -> None:
        """A step with the gradients of these tensors alone."""
        if settings != self._settings:
            self._change(settings)
        if used not in self._steps:
            self._steps[used] = self._traced(used)
        views = self._parts(self._flat(x))
        slopes = self._parts(self._flat(gradient))
        moved = self._steps[used](views, [slopes[at] for at in used])
        for own, new in zip(views, moved, strict=True):
            own[...] = new.numpy()

    def remembered(self) -> dict[str, Any]:
        return {"variables": [np.asarray(variable.numpy()) for variable in self._optimizer.variables]}

    def _traced(self, used: tuple[int, ...]) -> Any:
        """One step of these tensors as a graph, for the settings that the optimizer has now."""
        optimizer, variables = self._optimizer, self._variables

        def step(values: Any, gradients: Any) -> Any:
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)
            optimizer.apply(gradients, [variables[at] for at in used])
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
            self._steps = {}

    def _go_on_with(self, remembered: Sequence[Any]) -> None:
        own = self._optimizer.variables
        check_state(remembered, own)
        rate = self._optimizer.learning_rate
        for variable, value in zip(own, remembered, strict=True):
            if variable is not rate:  # it is a setting, which the next step brings
                variable.assign(np.asarray(value))


def is_elementwise(rule: NativeOptimizer) -> bool:
    """True if the rule is one of `keras.optimizers` that treats every element by itself."""
    return _kind(rule) in {kind for name, kind in _classes().items() if name in ELEMENTWISE}


def tried(rule: NativeOptimizer) -> dict[str, Any]:
    """The numbers of an optimizer's configuration, after a step on a small matrix; raises what is wrong."""
    optimizer = made(rule)
    variable = tf.keras.Variable(np.ones((2, 2), np.float32))
    try:
        optimizer.apply([tf.constant([[0.5, -1.0], [2.0, 0.25]])], [variable])
    except Exception as error:
        raise ConfigurationError(f"{rule!r} cannot do a step: {error}") from error
    config = optimizer.get_config().items()
    given = {name: value for name, value in config if is_number(value) and name != SCALE}
    if RATE in given and RATE in rule.made_with:
        given[RATE] = rule.made_with[RATE]  # to the last bit
    return given


def made(rule: NativeOptimizer) -> Any:
    """The optimizer, which knows no variables yet."""
    kind = _kind(rule)
    if not (inspect.isclass(kind) and issubclass(kind, Made)):
        raise ConfigurationError(
            f"{rule.rule!r} is no optimizer: give the name of a class of keras.optimizers, or a class "
            "derived from keras.optimizers.Optimizer"
        )
    for name, why in REFUSED.items():
        if issubclass(kind, getattr(tf.keras.optimizers, name, ())):
            raise ConfigurationError(f"agents do not take Keras's {name}, which {why}")
    settings = dict(rule.made_with)
    excluded = settings.pop(EXCLUDED, ())
    try:
        if isinstance(settings.get(RATE), Mapping):  # as a configuration of Keras's has a schedule
            settings[RATE] = tf.keras.optimizers.schedules.deserialize(dict(settings[RATE]))
        optimizer: Any = kind(**settings)
        if excluded:
            optimizer.exclude_from_weight_decay(
                var_names=[excluded] if isinstance(excluded, str) else excluded
            )
    except Exception as error:
        raise ConfigurationError(f"{rule!r} cannot be made: {error}") from error
    if optimizer.use_ema and not optimizer.ema_overwrite_frequency:
        raise ConfigurationError(
            f"{rule!r} keeps an average of the weights that only the end of Keras's fit puts in their place: "
            "set ema_overwrite_frequency, or leave use_ema out"
        )
    optimizer.loss_scale_factor = None  # what it divides by, Keras's training has multiplied the loss with
    return optimizer


def _variable(name: str, value: Flat) -> Any:
    """A variable whose path has the parts of a tensor's name, by which optimizers know it."""
    *scopes, last = name.split("/")
    with ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(tf.keras.name_scope(scope))
        return tf.keras.Variable(value, name=last)


def _classes() -> dict[str, Any]:
    return classes_in(tf.keras.optimizers, Made)


def _kind(rule: NativeOptimizer) -> Any:
    """The class of a rule, which may be given by name."""
    return named("keras.optimizers", _classes(), rule.rule) if isinstance(rule.rule, str) else rule.rule


ENGINE: Final = KerasEngine
