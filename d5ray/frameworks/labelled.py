"""The executor that agents train with, over any executor of a Network whose tensors can be bound to arrays"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.frameworks.arrays.library import ArrayLibrary
from d5ray.networks.buckets import OnReady
from d5ray.networks.executor import Allocate, Evaluation, Executor, Slot
from d5ray.networks.labelled import LabelledNetwork
from d5ray.networks.network import Network
from d5ray.networks.shapes import Shape
from d5ray.operators.loss import Loss

Array = np.ndarray[Any, Any]
EVALUATION_BATCH = 1024  # labels at a time, so that a large test split fits the memory
EVALUATION_BYTES = 1 << 24  # of inputs at a time: what the network makes of them is a multiple


class Bindable(Protocol):
    """An executor of a Network that takes its values from arrays, and leaves gradients in others."""

    network: Network
    forward_ns: int
    backward_ns: int
    on_gradient: Callable[[str], None] | None

    @property
    def trained(self) -> tuple[str, ...]: ...
    def fetch(self, name: str) -> Array | None: ...
    def inference(self, inputs: Mapping[str, Array]) -> dict[str, Array]: ...
    def inference_and_backprop(self, inputs: Mapping[str, Array], loss: str = ...) -> dict[str, Array]: ...
    def bind(self, parameters: Mapping[str, Any], gradients: Mapping[str, Any]) -> None: ...
    def bind_state(self, state: Mapping[str, Any]) -> None: ...
    def draw_from(self, seed: int) -> None: ...
    def passes(self) -> int: ...
    def go_on_from(self, passes: int) -> None: ...


@final
class LabelledExecutor(Executor):
    """Flat parameters, gradients and state of the array library; the network's tensors are bound to views."""

    def __init__(
        self, executor: Bindable, labelled: LabelledNetwork, loss: Loss, library: ArrayLibrary
    ) -> None:
        self.inner, self.labelled, self.loss = executor, labelled, loss
        self._library = library
        network = labelled.network
        self.slots = _slots({name: network.parameters[name] for name in executor.trained})
        self._state_slots = _slots(network.state_values)
        if not self.slots:
            raise ConfigurationError(
                "the network has no parameters to train: give it at least one node with weights"
            )
        values = _flat(network.parameters, self.slots, "parameters")
        self._type = network.inputs[labelled.inputs].dtype
        self._lay_into(library.put(values), library.put(np.zeros_like(values)))
        self.untrained = library.put(_flat(network.state_values, self._state_slots, "state", values.dtype))
        self.counters = ()
        executor.bind_state(_views(self.untrained, self._state_slots))

    def inference(self, inputs: Array) -> Array:
        found = self.inner.inference({self.labelled.inputs: self._input(inputs)})
        return found[self.labelled.scores]

    def inference_and_backprop(self, inputs: Array, labels: Array, on_ready: OnReady | None = None) -> float:
        own = self.labelled
        given = {own.inputs: self._input(inputs), own.labels: _labels(labels)}
        forward, backward = self.inner.forward_ns, self.inner.backward_ns
        if on_ready is None:
            outputs = self.inner.inference_and_backprop(given, own.loss)
            elsewhere = 0
        else:
            outputs, elsewhere = self._announcing(given, on_ready)
        self.forward_ns += self.inner.forward_ns - forward
        self.backward_ns += self.inner.backward_ns - backward - elsewhere
        return float(outputs[own.loss].reshape(()))

    def _announcing(self, given: Mapping[str, Array], on_ready: OnReady) -> tuple[dict[str, Array], int]:
        """The same pass, each gradient being reported when it is there; with the time spent in on_ready."""
        announcer = self._announcer(on_ready)
        places = {slot.name: place for place, slot in enumerate(self.slots)}
        self.inner.on_gradient = lambda name: announcer.arrived(places[name])
        try:
            outputs = self.inner.inference_and_backprop(given, self.labelled.loss)
        finally:
            self.inner.on_gradient = None
        within = announcer.nanoseconds
        announcer.finish()
        return outputs, within

    def evaluate(self, inputs: Array, labels: Array) -> Evaluation:
        total, right = 0.0, 0
        labels_at_once = EVALUATION_BATCH * len(labels) // max(1, labels.size)
        bytes_at_once = EVALUATION_BYTES * len(inputs) // max(1, inputs.nbytes)
        batch = max(1, min(labels_at_once, bytes_at_once))
        for start in range(0, len(labels), batch):
            truth = labels[start : start + batch]
            scores = self.inference(inputs[start : start + batch])
            total += self.loss.numpy(scores, truth) * len(truth)
            right += int((scores.argmax(axis=-1) == truth).sum())
        return Evaluation(loss=total / len(labels), accuracy=right / labels.size)

    def numpy_parameters(self) -> Array:
        return np.array(self._library.get(self.parameters))

    def named_state(self) -> dict[str, Array]:
        flat = self._library.get(self.untrained)
        return {name: np.array(view) for name, view in _views(flat, self._state_slots).items()}

    def random_state(self) -> Array:
        return np.array([self.inner.passes()], np.int64).view(np.uint8)

    def set_random_state(self, state: Array) -> None:
        self.inner.go_on_from(int(np.array(state).view(np.int64)[0]))

    def use_buffers(self, allocate: Allocate) -> None:
        if not isinstance(self.parameters, np.ndarray):
            return  # on a GPU
        values, gradients = self.parameters.copy(), self.gradients.copy()  # the new memory may be the old
        kind = values.dtype
        first, second = (_over(allocate(len(values), kind.name), len(values), kind) for _ in range(2))
        if np.may_share_memory(first, second):
            raise ConfigurationError(
                "allocate gave overlapping memory for parameters and gradients: it must give each its own"
            )
        first[...], second[...] = values, gradients
        self._lay_into(first, second)

    def draw_from(self, seed: int, rank: int) -> None:
        first = int(np.random.SeedSequence([seed, rank]).generate_state(1, np.uint64)[0])
        self.inner.draw_from(first)

    def _lay_into(self, parameters: Any, gradients: Any) -> None:
        self.parameters, self.gradients = parameters, gradients
        self.inner.bind(_views(parameters, self.slots), _views(gradients, self.slots))

    def _input(self, inputs: Array) -> Array:
        return inputs if inputs.dtype == self._type else inputs.astype(self._type)


def checked(made: LabelledExecutor, sample_shape: Shape, classes: int) -> LabelledExecutor:
    """The executor, after a trial of two samples whose output must fit the loss."""
    probe = np.zeros((2, *sample_shape), np.float32)
    try:
        output = made.inference(probe)
    except (ValueError, TypeError, IndexError, RuntimeError) as error:
        raise ConfigurationError(
            f"the network does not take samples of shape {sample_shape}: {error}"
        ) from error
    made.loss.check(output.shape, classes)
    return made


def _labels(labels: Array) -> Array:
    return labels if labels.dtype == np.int64 else labels.astype(np.int64)


def _slots(values: Mapping[str, Array]) -> tuple[Slot, ...]:
    made: list[Slot] = []
    offset = 0
    for name, value in values.items():
        made.append(Slot(name, offset, value.shape))
        offset += value.size
    return tuple(made)


def _flat(
    values: Mapping[str, Array], slots: tuple[Slot, ...], what: str, default: Any = np.float32
) -> Array:
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


def _views(flat: Any, slots: tuple[Slot, ...]) -> dict[str, Any]:
    return {s.name: flat[s.offset : s.offset + s.size].reshape(s.shape) for s in slots}


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
