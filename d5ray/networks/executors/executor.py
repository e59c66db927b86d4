"""Executor: the interface that every framework's adapter fills to execute a network, or a stage of one"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, final

import numpy as np

from d5ray.names.renamed import RenamedAttribute
from d5ray.networks.executors.flat_buffers import Allocate as Allocate
from d5ray.networks.executors.flat_buffers import FlatBuffers, Slot, by_name
from d5ray.networks.executors.gradient_buckets import Announcer, Buckets, OnReady, Range, partition
from d5ray.networks.executors.model_values import ModelValues
from d5ray.operators.loss import Loss


@dataclass(frozen=True)
class Evaluation:
    """Mean loss and accuracy (0..1) over a whole split; NaN where the loss does not classify.

    weight: of the split in a mean of losses, where that is not the number of its samples. counted: the labels
    that count, where the loss ignores some.
    """

    loss: float
    accuracy: float
    weight: float | None = None
    counted: int | None = None


def now_of(path: str) -> Any:
    """A property: what an attribute of an attribute is when it is read, such as "_inner.weight"."""
    return property(attrgetter(path))


class FlatExecutor:
    """The part that executors of whole networks and of stages share: tensors as views of flat buffers.

    `parameters` and `gradients` are contiguous one-dimensional arrays of the framework (n,); the model's
    tensors are views into them, so that a collective is one call on one buffer. `slots` says what lies where.

    What the model changes without training it, such as the running mean and variance of a BatchNorm, stands
    in `buffers` (m,), one more flat array of which the model's tensors are views (m may be 0), and in
    `counters`, the model's integer and boolean arrays as they are. They are kept up to date by training
    passes, and may be written in place, as the parameters may. `state_slots` and `counter_names` say what
    they are called.

    `unused` are the parameters that got no gradient in the last pass; theirs is -0.0 throughout, so that a
    sum over agents is -0.0 where none of them had one. `released` says that the model has parameters which
    required no gradient when the buffers were made, and do now: `take_released` makes these anew. `moving`
    names arrays of the state that training passes change, and may read; `frozen_statistics` those of
    normalizations that have gathered them, and are in evaluation mode by now. `notes` are what a run should
    tell of how the model was made. `values` are what the model has beside its arrays, where it has such.
    """

    parameters: Any
    gradients: Any
    slots: tuple[Slot, ...]
    state_slots: tuple[Slot, ...] = ()
    counter_names: tuple[str, ...] = ()
    buffers: Any
    untrained = RenamedAttribute("buffers")
    counters: tuple[Any, ...]
    unused: tuple[Slot, ...] = ()
    released: bool = False
    moving: frozenset[str] = frozenset()
    frozen_statistics: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    values: ModelValues | None = None
    _passes: int | None = None  # training passes that drew something, where these are counted alone
    _holder: "FlatBuffers | FlatExecutor"

    def _hold(self, holder: "FlatBuffers | FlatExecutor") -> None:
        """Have the arrays of these buffers, or of another executor; again when they have moved."""
        self._holder = holder
        self.parameters, self.gradients, self.slots = holder.parameters, holder.gradients, holder.slots
        self.buffers, self.counters = holder.buffers, holder.counters
        self.state_slots, self.counter_names = holder.state_slots, holder.counter_names

    @property
    def _flat(self) -> FlatBuffers:
        """The flat buffers, of an executor that has made them itself."""
        assert isinstance(self._holder, FlatBuffers)
        return self._holder

    def numpy_parameters(self) -> np.ndarray[Any, Any]:
        """A copy of the flat parameters (n,) in host memory."""
        return self._holder.numpy_parameters()

    def named_parameters(self) -> dict[str, np.ndarray[Any, Any]]:
        """A copy of every parameter tensor under its name, in host memory."""
        named = by_name(self.numpy_parameters(), self.slots)
        return {name: value.copy() for name, value in named.items()}

    def named_state(self) -> dict[str, np.ndarray[Any, Any]]:
        """A copy of every array behind `buffers` and `counters` under its name, in host memory."""
        return self._holder.named_state()

    def state_arrays(self) -> dict[str, Any]:
        """The arrays of the state by name, as they are, to be read and written in place."""
        return by_name(self.buffers, self.state_slots) | dict(
            zip(self.counter_names, self.counters, strict=False)
        )

    def state_dict(self, parameters: Any = None) -> dict[str, np.ndarray[Any, Any]]:
        """A copy of every tensor of the model by the model's own names and types, in host memory.

        These are parameters, trained or not, and buffers; a tensor with several names is there under each.
        parameters (n,): other values of the flat parameters, in host memory.
        """
        if (holder := getattr(self, "_holder", None)) is not None:
            found: dict[str, np.ndarray[Any, Any]] = holder.state_dict(parameters)
            return found
        own = self.numpy_parameters()  # of an executor of the user's, which has no holder
        named = by_name(own if parameters is None else np.asarray(parameters, own.dtype), self.slots)
        return {name: np.array(value) for name, value in named.items()} | self.named_state()

    @property
    def array_framework(self) -> str:
        """The name of the framework whose arrays the model's tensors are, such as "torch" or "numpy"."""
        holder = getattr(self, "_holder", None)
        return "numpy" if holder is None else str(holder.array_framework)

    def use_buffers(self, allocate: Allocate) -> None:
        """Move `parameters` and `gradients` (n,) into memory of the caller's; their values are kept.

        allocate(n, type) is called for the parameters, then for the gradients. It gives a writable array (n,)
        whose elements have the size of the type, a name such as "float32" or "bfloat16"; what NumPy calls
        them does not matter. The arrays are used until the next call, which may give the same memory again;
        one with `numpy.empty` gives shared memory free. To be called between steps, best before the first;
        arrays that were read from `parameters` and `gradients` before are not the model's any more.
        On a GPU nothing is moved, and allocate is not called.
        """
        self._holder.use_buffers(allocate)
        self._hold(self._holder)

    def visit_fixed(self, visit: Callable[[str, Any], None]) -> None:
        """Call visit with the name and the bytes (n,) of each tensor that is neither trained nor state.

        What it writes stays.
        """

    def adopt(self) -> None:
        """Bring into `parameters` what the model's own code, or an event, has put in a tensor's place."""

    def release(self, names: Collection[str]) -> None:
        """Let the model's parameters of these names require gradients."""

    def take_released(self) -> None:
        """Make the flat buffers anew, with the parameters that are `released`; old values are kept."""

    def forbid_adopting(self, holder: str) -> None:
        """Let a pass raise `ConfigurationError` where the model changes its own parameters: those are the
        holder's, who does not learn of it."""

    def random_state(self) -> np.ndarray[Any, Any]:
        """The state of the framework's random numbers, as bytes (n,) uint8; none unless it has some."""
        return np.array([] if self._passes is None else [self._passes], np.int64).view(np.uint8)

    def set_random_state(self, state: np.ndarray[Any, Any]) -> None:
        """Go on with the random numbers from this state."""
        if self._passes is not None:
            self._passes = int(np.array(state).view(np.int64)[0])

    def draw_from(self, seed: int, rank: int) -> None:
        """Let what the network draws at random in training, such as Dropout's masks, follow from these.

        What is drawn in the k-th training pass from now on depends on (seed, rank, k) alone: every agent
        draws its own, whoever else computes in the same process. k is in `random_state`.
        """


class Executor(FlatExecutor, ABC):
    """One network under one framework on one device, made for gradients by the flat buffer.

    `forward_ns` and `backward_ns` are the nanoseconds spent in `inference_and_backprop` since the start,
    without on_ready's.

    `weight` is that of the last training pass's batch, where the loss has given a sum and a weight, as soon
    as something is announced; what is given back is sum / weight, and so is the gradient of that, or of the
    sum where the weight is 0. `weighs` says whether batches have weights: None is for the first pass to tell.
    """

    forward_ns: int = 0
    backward_ns: int = 0
    weight: float | None = None
    weighs: bool | None = False
    _buckets: Buckets | None = None

    @abstractmethod
    def inference(self, inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Scores (batch, ...) of inputs (batch, ...), without gradients, in evaluation mode."""

    @abstractmethod
    def inference_and_backprop(
        self, inputs: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], on_ready: OnReady | None = None
    ) -> float:
        """The loss of the batch; its gradient stands in `gradients` afterwards, the old one is gone.

        on_ready(begin, end) is called as soon as gradients[begin:end] is complete, once for every range that
        `buckets` gave and in that order, even where no gradient arrives: then it is zero. From then on the
        range belongs to the callee, who may change it at once. On a GPU "complete" means: in the order of the
        current stream. on_ready runs inside the framework's backward pass, on a GPU in a thread of it. It
        must neither start a backward pass nor switch to another greenlet; what it raises is raised here.
        """

    @abstractmethod
    def evaluate(self, inputs: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> Evaluation:
        """Mean loss, and accuracy where the loss classifies, over all the samples, in evaluation mode."""

    def counting(self, loss: Loss, inputs: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> Loss:
        """The loss as it counts the labels of such a batch under this model, for the weights of pieces.

        A model or a function that predicts the next token, given the tokens as labels, looks at no first one.
        """
        return loss

    @final
    def evaluate_pieces(
        self, pieces: Iterable[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]
    ) -> Evaluation:
        """Evaluate samples that come in pieces (inputs, labels), at least one; none is kept."""
        judged = [(self.evaluate(inputs, labels), len(labels)) for inputs, labels in pieces]
        if len(judged) == 1:
            return judged[0][0]
        weights = [samples if each.weight is None else each.weight for each, samples in judged]
        counts = [samples if each.counted is None else each.counted for each, samples in judged]
        return Evaluation(
            loss=sum(each.loss * own for (each, _), own in zip(judged, weights, strict=True))
            / (sum(weights) or 1),
            accuracy=sum(each.accuracy * own for (each, _), own in zip(judged, counts, strict=True))
            / (sum(counts) or 1),
        )

    @final
    def buckets(self, bucket_bytes: int) -> tuple[Range, ...]:
        """Set, and give, the ranges [begin, end) that are announced to on_ready, in their order.

        They are made of whole parameter tensors and follow one another from the end of the buffer to its
        beginning; each but the last holds at least `bucket_bytes`. Until this is called the whole buffer is
        one range. Equal models have equal ranges, so every agent announces in the same order.
        """
        self._buckets = partition(self.slots, self.parameters.dtype.itemsize, bucket_bytes)
        return self._buckets.ranges

    def _announcer(self, on_ready: OnReady) -> Announcer:
        """The object that one backward pass reports its gradients to."""
        if self._buckets is None:
            self.buckets(self.parameters.nbytes or 1)
        assert self._buckets is not None
        return Announcer(self._buckets, on_ready)


class WrappedExecutor(Executor):
    """An executor around another one, which changes how a training pass is done; all else is the other's."""

    def __init__(self, inner: Executor) -> None:
        self._inner = inner
        self.notes, self.values = inner.notes, inner.values
        self._hold(inner)

    @property
    def inner(self) -> Executor:
        """The executor that computes."""
        return self._inner

    inference = now_of("_inner.inference")
    evaluate = now_of("_inner.evaluate")
    counting = now_of("_inner.counting")
    weight = now_of("_inner.weight")
    weighs = now_of("_inner.weighs")
    unused = now_of("_inner.unused")
    released = now_of("_inner.released")
    release = now_of("_inner.release")
    adopt = now_of("_inner.adopt")
    forbid_adopting = now_of("_inner.forbid_adopting")
    moving = now_of("_inner.moving")
    frozen_statistics = now_of("_inner.frozen_statistics")
    visit_fixed = now_of("_inner.visit_fixed")
    random_state = now_of("_inner.random_state")
    set_random_state = now_of("_inner.set_random_state")
    draw_from = now_of("_inner.draw_from")

    def take_released(self) -> None:
        self._inner.take_released()
        self._hold(self._inner)
