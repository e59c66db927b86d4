"""Keras's own optimizers, those of `keras.optimizers` or one's own, wherever an update rule of d5ray fits"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from d5ray.training.optimizers.native import NativeOptimizer, Settings
from d5ray.training.optimizers.optimizer import Slots

if TYPE_CHECKING:
    from d5ray.frameworks.tensorflow.keras_engine import KerasEngine

OF_TENSORS: Final = ("clipnorm", "global_clipnorm", "exclude_from_weight_decay")  # settings that look at them


@final
@dataclass(frozen=True, init=False, repr=False)
class KerasOptimizer(NativeOptimizer):
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

    def tried(self) -> Settings:
        from d5ray.frameworks.tensorflow import keras_engine  # noqa: PLC0415 - imports TensorFlow

        return keras_engine.tried(self)

    @property
    def rate_name(self) -> str:
        return "learning_rate"

    @property
    def tensorwise(self) -> bool:
        """True if the optimizer clips by norm, looks at names, or its update needs the whole tensor."""
        from d5ray.frameworks.tensorflow import keras_engine  # noqa: PLC0415 - imports TensorFlow

        looks = any(self.made_with.get(name) is not None for name in OF_TENSORS)
        return looks or not keras_engine.is_elementwise(self.rule)

    def engine(self, x: Any, slots: Slots, remembered: Mapping[str, Any] | None) -> "KerasEngine":
        from d5ray.frameworks.tensorflow import keras_engine  # noqa: PLC0415 - imports TensorFlow

        return keras_engine.KerasEngine(self, x, slots, remembered)
