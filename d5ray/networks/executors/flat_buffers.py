"""FlatBuffers: parameters, gradients and other state as flat arrays, with slot and view of each tensor"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.networks.executors.array_library import ArrayLibrary, HostArray, Tensors

NO_TENSORS: Final[Tensors] = {}
Allocate = Callable[[int, str], HostArray]


@dataclass(frozen=True)
class Slot:
    """The place of one parameter tensor in the flat buffer."""

    name: str
    offset: int  # in elements
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of elements of the tensor."""
        return int(np.prod(self.shape, dtype=np.int64))


def by_name(flat: Any, slots: Iterable[Slot]) -> dict[str, Any]:
    """Views of a flat array (n,) of an array library, of every tensor that lies in it, by their names."""
    return {s.name: flat[s.offset : s.offset + s.size].reshape(s.shape) for s in slots}


@final
class FlatBuffers:
    """`parameters` and `gradients` (n,), `buffers` (m,), and the views of each by the tensors' names.

    The values that are given are copied; tensors that can lie in memory of others' (see `ArrayLibrary.lay`)
    lie in the views from then on. default: the type where there are no parameters. Raises
    `ConfigurationError` for values of several types, or on several devices. counters: state that is no
    floating-point number, as it is.
    """

    def __init__(
        self,
        parameters: Tensors,
        state: Tensors,
        library: ArrayLibrary,
        default: Any = np.float32,
        counters: Tensors = NO_TENSORS,
    ) -> None:
        self._library, self._tensors = library, parameters
        self.counters, self.counter_names = tuple(counters.values()), tuple(counters)
        self.slots, self.state_slots = _slots(parameters), _slots(state)
        empty = library.put(np.empty(0, default))
        values = self._joined("parameters", parameters, empty)
        self._lay_into(values, library.xp.zeros_like(values))
        self.buffers = self._joined("buffers", state, values[:0])
        self.state_views = by_name(self.buffers, self.state_slots)
        library.lay(state, self.state_views, {})

    def use_buffers(self, allocate: Allocate) -> None:
        """Move into memory of the caller's, values being kept; see `FlatExecutor.use_buffers`."""
        if not self._library.on_host:
            return
        # Copies, since the new memory may be the old.
        held = [np.array(self._library.host(each)) for each in (self.parameters, self.gradients)]
        kind = held[0].dtype
        given = [allocate(len(values), kind.name) for values in held]
        first, second = (_over(memory, len(values), kind) for memory, values in zip(given, held, strict=True))
        if np.may_share_memory(first, second):
            raise ConfigurationError(
                "allocate gave overlapping memory for parameters and gradients: it must give each its own"
            )
        first[...], second[...] = held
        self._lay_into(self._library.put(first), self._library.put(second))

    def numpy_parameters(self) -> HostArray:
        """A copy (n,) in host memory."""
        found = self._library.get(self.parameters)
        return found.copy() if found is self.parameters else found

    def named_state(self) -> dict[str, HostArray]:
        """A copy of every array of the state under its name, in host memory."""
        flat = self._library.get(self.buffers)
        return {
            name: np.array(view) for name, view in by_name(flat, self.state_slots).items()
        } | self._counted

    def state_dict(self, parameters: HostArray | None = None) -> dict[str, HostArray]:
        """A copy of every tensor of parameters and state; see `FlatExecutor.state_dict`."""
        own = self._library.host(self.parameters)
        flat = own if parameters is None else np.asarray(parameters, own.dtype)
        parts = by_name(flat, self.slots) | by_name(self._library.host(self.buffers), self.state_slots)
        return {name: np.array(view) for name, view in parts.items()} | self._counted

    @property
    def _counted(self) -> dict[str, HostArray]:
        named = zip(self.counter_names, self.counters, strict=True)
        return {name: np.array(self._library.host(value)) for name, value in named}

    @property
    def array_framework(self) -> str:
        """The name of the array library."""
        return self._library.name

    def _lay_into(self, parameters: Any, gradients: Any) -> None:
        self.parameters, self.gradients = parameters, gradients
        self.parameter_views = by_name(parameters, self.slots)
        self.gradient_views = by_name(gradients, self.slots)
        self._library.lay(self._tensors, self.parameter_views, self.gradient_views)

    def _joined(self, what: str, tensors: Tensors, like: Any) -> Any:
        """A flat copy (n,) of these tensors, which are of one type and on one device."""
        for where, of, remedy in (
            ("of several types", "dtype", "convert the model, under PyTorch with .to(torch.float32)"),
            ("on several devices", "device", "move the model with .to(device)"),
        ):
            found = sorted({str(getattr(each, of, "")) for each in tensors.values()})
            if len(found) > 1:
                raise ConfigurationError(
                    f"the model's {what} are {where} ({', '.join(found)}), but the flat buffer needs one: "
                    f"{remedy}"
                )
        return self._library.joined(list(tensors.values())) if tensors else like


def _slots(tensors: Tensors) -> tuple[Slot, ...]:
    """The places of these tensors in their flat buffer, one after the other."""
    made: list[Slot] = []
    offset = 0
    for name, tensor in tensors.items():
        made.append(Slot(name, offset, tuple(tensor.shape)))
        offset += made[-1].size
    return tuple(made)


def _over(memory: object, count: int, kind: "np.dtype[Any]") -> HostArray:
    """The memory that was allocated as an array (count,) of this type, whatever NumPy calls its elements."""
    needs = (
        f"{kind} needs a writable, contiguous and aligned NumPy array of {count} elements of {kind.itemsize} "
        "bytes"
    )
    if not isinstance(memory, np.ndarray):
        raise ConfigurationError(f"allocate gave a {type(memory).__name__}, but {needs}")
    fits = memory.shape == (count,) and memory.itemsize == kind.itemsize
    usable = memory.flags.c_contiguous and memory.flags.writeable and memory.ctypes.data % kind.itemsize == 0
    if not (fits and usable):
        raise ConfigurationError(
            f"allocate gave an array of shape {memory.shape} and type {memory.dtype} with strides "
            f"{memory.strides} at address {memory.ctypes.data:#x}, writable: {memory.flags.writeable}; "
            f"{needs}"
        )
    return memory.view(kind)
