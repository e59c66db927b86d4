"""Parameters, gradients and state as flat arrays of an array library, with a view for every tensor"""

from collections.abc import Mapping
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.frameworks.arrays.library import ArrayLibrary
from d5ray.networks.executors.executor import Allocate
from d5ray.networks.executors.slots import Slot, by_name

Array = np.ndarray[Any, Any]


@final
class FlatArrays:
    """`parameters` and `gradients` (n,), `untrained` (m,), and the views of each by the tensors' names.

    default: the type where there are no parameters. Raises `ConfigurationError` for values of several types.
    """

    def __init__(
        self, parameters: Mapping[str, Array], state: Mapping[str, Array], library: ArrayLibrary, default: Any
    ) -> None:
        self._library = library
        self.slots, self._state_slots = _slots(parameters), _slots(state)
        values = _flat(parameters, self.slots, "parameters", default)
        self._lay_into(library.put(values), library.put(np.zeros_like(values)))
        self.untrained = library.put(_flat(state, self._state_slots, "state", values.dtype))
        self.state_views = by_name(self.untrained, self._state_slots)

    def use(self, allocate: Allocate) -> bool:
        """Move into memory of the caller's, values being kept; see `Executor.use_buffers`. Not on a GPU."""
        if not isinstance(self.parameters, np.ndarray):
            return False
        values, gradients = self.parameters.copy(), self.gradients.copy()  # the new memory may be the old
        kind = values.dtype
        first, second = (_over(allocate(len(values), kind.name), len(values), kind) for _ in range(2))
        if np.may_share_memory(first, second):
            raise ConfigurationError(
                "allocate gave overlapping memory for parameters and gradients: it must give each its own"
            )
        first[...], second[...] = values, gradients
        self._lay_into(first, second)
        return True

    def numpy_parameters(self) -> Array:
        """A copy (n,) in host memory."""
        return np.array(self._library.get(self.parameters))

    def named_state(self) -> dict[str, Array]:
        """A copy of every array of the state under its name, in host memory."""
        flat = self._library.get(self.untrained)
        return {name: np.array(view) for name, view in by_name(flat, self._state_slots).items()}

    def _lay_into(self, parameters: Any, gradients: Any) -> None:
        self.parameters, self.gradients = parameters, gradients
        self.parameter_views = by_name(parameters, self.slots)
        self.gradient_views = by_name(gradients, self.slots)


def _slots(values: Mapping[str, Array]) -> tuple[Slot, ...]:
    made: list[Slot] = []
    offset = 0
    for name, value in values.items():
        made.append(Slot(name, offset, value.shape))
        offset += value.size
    return tuple(made)


def _flat(values: Mapping[str, Array], slots: tuple[Slot, ...], what: str, default: Any) -> Array:
    """A flat copy (n,) of these tensors, which are of one type."""
    kinds = {values[slot.name].dtype for slot in slots}
    if len(kinds) > 1:
        raise ConfigurationError(
            f"the network's {what} are of several types ({', '.join(sorted(map(str, kinds)))}), but the flat "
            "buffer needs one: convert the model"
        )
    if not slots:
        return np.empty(0, default)
    return np.concatenate([values[slot.name].reshape(-1) for slot in slots])


def _over(memory: object, count: int, kind: "np.dtype[Any]") -> Array:
    """The memory that was allocated, as an array (count,) of this type."""
    usable = (
        isinstance(memory, np.ndarray)
        and memory.shape == (count,)
        and memory.itemsize == kind.itemsize
        and memory.flags.c_contiguous
        and memory.flags.writeable
        and memory.ctypes.data % kind.itemsize == 0
    )
    if not usable:
        found = f"{memory.dtype} {memory.shape}" if isinstance(memory, np.ndarray) else type(memory).__name__
        raise ConfigurationError(
            f"allocate gave {found}: it must give a writable, contiguous and aligned NumPy array of {count} "
            f"elements of {kind.itemsize} bytes"
        )
    assert isinstance(memory, np.ndarray)
    return memory.view(kind)
