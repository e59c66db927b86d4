"""Optax's optimizers, those of `optax` or chains of one's own, wherever an update rule of d5ray fits"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from d5ray.training.optimizers.native import NativeOptimizer, Settings
from d5ray.training.optimizers.optimizer import Slots

if TYPE_CHECKING:
    from d5ray.frameworks.jax.optax_engine import OptaxEngine


@final
@dataclass(frozen=True, init=False, repr=False)
class OptaxOptimizer(NativeOptimizer):
    """OptaxOptimizer("adamw", learning_rate=0.001): an optimizer of Optax, with Optax's settings.

    rule: the name of a function of `optax`, such a function, or one of your own that gives an
    `optax.GradientTransformation`, such as a chain. Works on arrays of NumPy and PyTorch in host memory,
    whatever computes the gradients; a step is one compiled function, into and out of which they are copied.
    Those of Optax that treat every element by itself get the flat buffer as one array, and may be shared out
    over servers and agents; all others get a dictionary of the model's tensors by name. Settings follow a
    schedule under Optax's names; one that is not the learning rate is compiled anew each time that it
    changes. Raises `ConfigurationError` where Optax is not installed.
    """

    def tried(self) -> Settings:
        found: Settings = _engine().tried(self)
        return found

    @property
    def rate_name(self) -> str:
        return "learning_rate"

    @property
    def tensorwise(self) -> bool:
        """True if the optimizer's update of an element needs the whole tensor, or chooses by tensor."""
        return not _engine().is_elementwise(self)

    def engine(self, x: Any, slots: Slots, remembered: Mapping[str, Any] | None) -> "OptaxEngine":
        made: OptaxEngine = _engine().OptaxEngine(self, x, slots, remembered)
        return made


def _engine() -> Any:
    from d5ray.frameworks.jax import check_installed  # noqa: PLC0415 - as the next

    check_installed("OptaxOptimizer is of Optax's")
    from d5ray.frameworks.jax import optax_engine  # noqa: PLC0415 - imports JAX

    return optax_engine
