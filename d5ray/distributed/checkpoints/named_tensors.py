"""The arrays of an agent's file: the model's tensors by the model's own names, what else there is by d5ray's

So PyTorch, safetensors and Hugging Face read the model out of a checkpoint by their own tools. Files of the
first format hold flat arrays in the place of the tensors.
"""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from d5ray.distributed.checkpoints.packed import Packed
from d5ray.distributed.checkpoints.state import pack, unpack_into
from d5ray.errors import StorageError
from d5ray.frameworks.host import host_copy, host_view, native, on_device
from d5ray.metrics.record.tensor_file import Array
from d5ray.networks.executors.executor import Executor, FlatExecutor
from d5ray.networks.executors.flat_buffers import Slot, by_name
from d5ray.networks.executors.model_values import ModelValues

OWN: Final = "d5ray/"  # what d5ray's own names begin with; no model's can
RANDOM: Final = "random"  # the framework's random numbers, which every file has
VALUES: Final = "values"  # what a model has beside its tensors
NO_VALUES: Final = np.empty(0, np.uint8)
PARAMETERS, UNTRAINED, COUNTER = "parameters", "untrained", "counter.{}"  # flat, of the first format


def with_model(executor: Executor, own: Mapping[str, Array], *, whole: bool) -> dict[str, Array]:
    """All arrays of a file: of the model, views where they lie in host memory, and d5ray's own ones.

    whole: also tensors that no training changes, and further names of those that it does.
    """
    found = by_name(_flat(executor.parameters), executor.slots)
    if len(executor.buffers):
        found |= by_name(_flat(executor.buffers), _state_slots(executor))
    for name, counter in zip(_counter_names(executor), executor.counters, strict=True):
        found[name] = _flat(counter.reshape(-1)).reshape(tuple(counter.shape))
    if whole:
        found |= {name: value for name, value in executor.state_dict().items() if name not in found}
    return found | {f"{OWN}{name}": array for name, array in own.items()}


def own_arrays(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays of a file that are d5ray's own, by the names that `with_model` was given."""
    if _is_first_format(arrays):
        return dict(arrays)
    return {name[len(OWN) :]: array for name, array in arrays.items() if name.startswith(OWN)}


def model_arrays(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The model's tensors by its own names; `StorageError` for a file of the first format."""
    if _is_first_format(arrays):
        raise StorageError("the checkpoint is of the first format, which has no tensors by name")
    return {name: array for name, array in arrays.items() if not name.startswith(OWN)}


def fill_model(executor: Executor, arrays: Mapping[str, Array]) -> None:
    """Give an executor the model's tensors of a file, of either format, to the last bit.

    Raises `StorageError` for those of another model.
    """
    if _is_first_format(arrays):
        _take(executor.parameters, arrays[PARAMETERS], PARAMETERS)
        if len(executor.buffers):
            _take(executor.buffers, arrays[UNTRAINED], UNTRAINED)
        names: Sequence[str] = [COUNTER.format(at) for at in range(len(executor.counters))]
    else:
        _fill(executor.parameters, executor.slots, arrays)
        _fill(executor.buffers, _state_slots(executor), arrays)
        names = _counter_names(executor)
    for name, counter in zip(names, executor.counters, strict=True):
        _take(counter.reshape(-1), arrays[name].reshape(-1), name)


def fill_fixed(executor: Executor, arrays: Mapping[str, Array]) -> None:
    """Give an executor those tensors of a file that are neither trained nor state; some may be missing."""

    def fill(name: str, values: Any) -> None:
        if name in arrays:
            _take(values, np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8), name)

    executor.visit_fixed(fill)


def values_of(executor: FlatExecutor) -> Array:
    """Bytes (n,) of what an executor's model has changed beside its tensors, for `give_values`; none: n = 0.

    Raises `ConfigurationError` for what cannot be kept, by its name.
    """
    found = {} if executor.values is None else executor.values.changed()
    if not found:
        return NO_VALUES
    return pack(SimpleNamespace(**found), "the model").bytes


def give_values(own: ModelValues | None, data: Array, like: Any) -> None:
    """Let a model have these values, and all others as they were when it was made.

    like: an array of the framework and device on which new ones are to be made.
    """
    if own is not None:
        found = Packed.read(data, "the model's values") if len(data) else Packed({})
        fresh = SimpleNamespace(**own.current(found.data))
        unpack_into(fresh, found, like, "the model")
        own.put(vars(fresh))


def buffer_arrays(executor: Executor) -> dict[str, Array]:
    """A copy of all that an executor does not train, by name, for `fill_buffers` of another one."""
    found = {name: _flat(array.reshape(-1)).copy() for name, array in executor.state_arrays().items()}
    executor.visit_fixed(lambda name, values: found.update({name: _flat(values).copy()}))
    return found | {f"{OWN}{VALUES}": values_of(executor)}


def fill_buffers(executor: Executor, arrays: Mapping[str, Array]) -> None:
    """Give an executor what another one has that is not trained."""
    for name, array in executor.state_arrays().items():
        _take(array.reshape(-1), arrays[name], name)
    executor.visit_fixed(lambda name, values: _take(values, arrays[name], name))
    give_values(executor.values, arrays[f"{OWN}{VALUES}"], executor.parameters)


# ------------------------------------------------------------------------------------------------------


def _is_first_format(arrays: Mapping[str, Array]) -> bool:
    return f"{OWN}{RANDOM}" not in arrays


def _state_slots(executor: Executor) -> tuple[Slot, ...]:
    """The places of tensors in `buffers`; of an executor that does not say them, as a whole."""
    if executor.state_slots or not len(executor.buffers):
        return executor.state_slots
    return (Slot(f"{OWN}{UNTRAINED}", 0, (len(executor.buffers),)),)


def _counter_names(executor: Executor) -> Sequence[str]:
    return executor.counter_names or [f"{OWN}{COUNTER.format(at)}" for at in range(len(executor.counters))]


def _flat(array: Any) -> Array:
    return host_copy(array) if on_device(array) else host_view(array)


def _fill(own: Any, slots: Sequence[Slot], arrays: Mapping[str, Array]) -> None:
    """own (n,) ← the tensors in their places."""
    for slot in slots:
        if slot.name not in arrays:
            raise StorageError(f"the checkpoint has no {slot.name}: it is of another model")
        _take(own[slot.offset : slot.offset + slot.size], arrays[slot.name].reshape(-1), slot.name)


def _take(own: Any, values: Array, name: str) -> None:
    """own (n,) ← values (n,), to the last bit."""
    if len(own) != len(values):
        raise StorageError(f"the checkpoint's {name} are {len(values)} numbers, the model has {len(own)}")
    if isinstance(own, np.ndarray):
        own[...] = values
    elif on_device(own):
        own[...] = native(values, own)
    else:
        host_view(own)[...] = values
