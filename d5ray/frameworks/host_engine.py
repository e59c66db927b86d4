"""HostEngine: what engines have in common that copy arrays in host memory into a framework and back"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.frameworks.host import Flat, host_view, on_device
from d5ray.training.optimizers.native import Engine, NativeOptimizer
from d5ray.training.optimizers.optimizer import Slots

RATE = "learning_rate"


class HostEngine(Engine):
    """An engine over x (n,) of NumPy or PyTorch, whose optimizer gets it in parts: tensors, or one vector."""

    def __init__(self, rule: NativeOptimizer, slots: Slots) -> None:
        self.rule, self._slots, self._settings = rule, slots, rule.made_with
        self._names = [slot.name for slot in slots] or ["parameters"]

    def _flat(self, array: Any) -> Flat:
        if on_device(array):
            raise ConfigurationError(
                f"{self.rule!r} works on arrays in host memory, found one on a device: choose "
                "TorchOptimizer, or an update rule of d5ray"
            )
        return array if isinstance(array, np.ndarray) else host_view(array)

    def _parts(self, flat: Flat) -> list[Flat]:
        """The tensors, as views of a flat array."""
        parts = [flat[slot.offset : slot.offset + slot.size].reshape(slot.shape) for slot in self._slots]
        return parts or [flat]


def check_state(remembered: Sequence[Any], own: Sequence[Any]) -> None:
    """Raise `ConfigurationError` where what an optimizer remembers has other shapes than its own arrays."""
    if [tuple(np.shape(value)) for value in remembered] != [tuple(value.shape) for value in own]:
        raise ConfigurationError(
            f"the optimizer's state is of {len(remembered)} arrays, here are {len(own)}, or their shapes are "
            "others: it is of another model"
        )
