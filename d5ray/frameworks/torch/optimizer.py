"""PyTorch's own optimizers, any class of `torch.optim` or one's own, wherever an update rule of d5ray fits"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from d5ray.checks import check_rate
from d5ray.training.optimizers.native import NativeOptimizer, Settings
from d5ray.training.optimizers.optimizer import Slots

if TYPE_CHECKING:
    from d5ray.frameworks.torch.native import TorchEngine


@final
@dataclass(frozen=True, init=False, repr=False)
class TorchOptimizer(NativeOptimizer):
    """TorchOptimizer("AdamW", lr=0.001, weight_decay=0.05): an optimizer of PyTorch, with PyTorch's settings.

    rule: the name of a class of `torch.optim`, a class derived from `torch.optim.Optimizer`, or a function of
    [(name, tensor), ...] and the settings that gives an optimizer of them, for parameter groups of one's own.
    Works on the arrays of PyTorch and, over the same memory, of NumPy and CuPy. Those of `torch.optim` that
    treat every element by itself get the flat buffer as one tensor, and may be shared out over servers and
    agents; all others get views in the model's shapes. Settings follow a schedule under PyTorch's names (`lr`
    also as `learning_rate`); groups keep their ratios to the first value. A rule that wants a second gradient
    within a step, such as LBFGS with max_iter above 1, is refused: a step has one.
    """

    def tried(self) -> Settings:
        from d5ray.frameworks.torch import native  # noqa: PLC0415 - imports torch

        if callable(rate := self.settings.get("lr")) or hasattr(rate, "get_last_lr"):
            check_rate("lr", rate)  # a scheduler
        return native.tried(self)

    @property
    def rate_name(self) -> str:
        return "lr"

    @property
    def tensorwise(self) -> bool:
        """True if the optimizer's update of an element needs the whole tensor."""
        from d5ray.frameworks.torch import native  # noqa: PLC0415 - imports torch

        return not native.is_elementwise(self.rule)

    def engine(self, x: Any, slots: Slots, remembered: Mapping[str, Any] | None) -> "TorchEngine":
        from d5ray.frameworks.torch import native  # noqa: PLC0415 - imports torch

        return native.TorchEngine(self, x, slots, remembered)
