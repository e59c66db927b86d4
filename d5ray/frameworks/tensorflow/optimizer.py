"""Keras's own optimizers, those of `keras.optimizers` or one's own, wherever an update rule of d5ray fits"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from d5ray.training.optimizers.native import NativeOptimizer, Settings
from d5ray.training.optimizers.optimizer import Slots

if TYPE_CHECKING:
    from d5ray.frameworks.tensorflow.keras_engine import KerasEngine

CLIPS: Final = ("clipnorm", "global_clipnorm")  # settings that look at whole tensors


@final
@dataclass(frozen=True, init=False, repr=False)
class KerasOptimizer(NativeOptimizer):
    """KerasOptimizer("AdamW", learning_rate=0.001): an optimizer of Keras, with Keras's settings.

    rule: the name of a class of `keras.optimizers`, or a class derived from `keras.optimizers.Optimizer`.
    Works on arrays of NumPy and PyTorch in host memory, whatever computes the gradients; they are copied into
    TensorFlow's variables and back in every step. Those of Keras that treat every element by itself get the
    flat buffer as one tensor, unless they clip norms, and may be shared out over servers and agents; all
    others get tensors in the model's shapes. Settings follow a schedule under Keras's names; one that is not
    the learning rate is a new function of TensorFlow each time that it changes. Keras keeps the learning rate
    in float32. Raises `ConfigurationError` where TensorFlow is not installed.
    """

    def tried(self) -> Settings:
        from d5ray.frameworks.tensorflow import keras_engine  # noqa: PLC0415 - imports TensorFlow

        return keras_engine.tried(self)

    @property
    def rate_name(self) -> str:
        return "learning_rate"

    @property
    def tensorwise(self) -> bool:
        """True if the optimizer clips by norm, or its update of an element needs the whole tensor."""
        from d5ray.frameworks.tensorflow import keras_engine  # noqa: PLC0415 - imports TensorFlow

        clips = any(self.made_with.get(name) is not None for name in CLIPS)
        return clips or not keras_engine.is_elementwise(self.rule)

    def engine(self, x: Any, slots: Slots, remembered: Mapping[str, Any] | None) -> "KerasEngine":
        from d5ray.frameworks.tensorflow import keras_engine  # noqa: PLC0415 - imports TensorFlow

        return keras_engine.KerasEngine(self, x, slots, remembered)
