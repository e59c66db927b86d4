"""Optimizers of PyTorch, Keras and Optax, wherever an update rule of d5ray fits; no framework is imported"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Final, final

from d5ray.checks import check_rate
from d5ray.frameworks.jax import check_installed
from d5ray.training.optimizers.native import Engine, NativeOptimizer, Settings
from d5ray.training.optimizers.optimizer import Slots

OF_TENSORS: Final = ("clipnorm", "global_clipnorm", "exclude_from_weight_decay")  # settings that look at them


class _WithEngine(NativeOptimizer):
    """An optimizer whose engine is in a module that imports its framework, with what else it knows of it.

    _module: which has `tried` and `is_elementwise`, functions of this optimizer, and the class `ENGINE`.
    """

    _module: ClassVar[str]
    rate_name: ClassVar[str] = "learning_rate"

    def tried(self) -> Settings:
        found: Settings = self._engines().tried(self)
        return found

    @property
    def tensorwise(self) -> bool:
        """True if the optimizer's update of an element needs the whole tensor, or chooses by tensor."""
        return not self._engines().is_elementwise(self)

    def engine(self, x: Any, slots: Slots, remembered: Mapping[str, Any] | None) -> Engine:
        made: Engine = self._engines().ENGINE(self, x, slots, remembered)
        return made

    def _engines(self) -> Any:
        return import_module(f"d5ray.frameworks.{self._module}")


@final
@dataclass(frozen=True, init=False, repr=False)
class TorchOptimizer(_WithEngine):
    """TorchOptimizer("AdamW", lr=0.001, weight_decay=0.05): an optimizer of PyTorch, with PyTorch's settings.

    rule: the name of a class of `torch.optim`, a class derived from `torch.optim.Optimizer`, or a function of
    [(name, tensor), ...] and the settings that gives an optimizer of them, for parameter groups of one's own.
    Works on the arrays of PyTorch and, over the same memory, of NumPy and CuPy. Those of `torch.optim` that
    treat every element by itself get the flat buffer as one tensor, and may be shared out over servers and
    agents; all others get views in the model's shapes. Settings follow a schedule under PyTorch's names (`lr`
    also as `learning_rate`); groups keep their ratios to the first value. A rule that wants a second gradient
    within a step, such as LBFGS with max_iter above 1, is refused: a step has one.
    """

    _module = "torch.native"
    rate_name = "lr"

    def tried(self) -> Settings:
        if callable(rate := self.settings.get("lr")) or hasattr(rate, "get_last_lr"):
            check_rate("lr", rate)  # a scheduler
        return super().tried()


@final
@dataclass(frozen=True, init=False, repr=False)
class KerasOptimizer(_WithEngine):
    """KerasOptimizer("AdamW", learning_rate=0.001): an optimizer of Keras, with Keras's settings.

    rule: the name of a class of `keras.optimizers`, or a class derived from `keras.optimizers.Optimizer`.
    Works on arrays of NumPy and PyTorch in host memory, whatever computes the gradients; they are copied into
    TensorFlow's variables and back in every step. Those of Keras that treat every element by itself get the
    flat buffer as one tensor, unless they clip norms, and may be shared out over servers and agents; all
    others get tensors in the model's shapes, under its names. `exclude_from_weight_decay=("bias",)` is that
    method of Keras's; a schedule of Keras's may be the learning rate; `loss_scale_factor` changes nothing, as
    Keras divides by it what it has multiplied before. Settings follow a schedule under Keras's names; one
    that is not the learning rate is a new function of TensorFlow each time that it changes. Keras keeps the
    learning rate in float32. Raises `ConfigurationError` where TensorFlow is not installed.
    """

    _module = "tensorflow.keras_engine"

    @property
    def tensorwise(self) -> bool:
        """True if the optimizer clips by norm, looks at names, or its update needs the whole tensor."""
        return any(self.made_with.get(name) is not None for name in OF_TENSORS) or super().tensorwise


@final
@dataclass(frozen=True, init=False, repr=False)
class OptaxOptimizer(_WithEngine):
    """OptaxOptimizer("adamw", learning_rate=0.001): an optimizer of Optax, with Optax's settings.

    rule: the name of a function of `optax`, such a function, or one of your own that gives an
    `optax.GradientTransformation`, such as a chain. Works on arrays of NumPy and PyTorch in host memory,
    whatever computes the gradients; a step is one compiled function, into and out of which they are copied.
    Those of Optax that treat every element by itself get the flat buffer as one array, and may be shared out
    over servers and agents; all others get a dictionary of the model's tensors by name. Settings follow a
    schedule under Optax's names; one that is not the learning rate is compiled anew each time that it
    changes. Raises `ConfigurationError` where Optax is not installed.
    """

    _module = "jax.optax_engine"

    def _engines(self) -> Any:
        check_installed("OptaxOptimizer is of Optax's")
        return super()._engines()
