"""MicroBatched: an executor that computes every batch in micro-batches, in the memory of one of them"""

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from d5ray.checks import check_count, check_items, check_kind
from d5ray.errors import ConfigurationError
from d5ray.networks.events.observer import Observer
from d5ray.networks.executors.executor import now_of
from d5ray.networks.executors.graph_executor import Array, Arrays, GraphExecutor, Run
from d5ray.networks.executors.plan import Plan
from d5ray.networks.microbatch.sample_axes import sample_inputs, whereabouts
from d5ray.networks.microbatch.samples import AVERAGE, SHARED, SUM, Kind, SampleAxis


@final
class MicroBatched(GraphExecutor):
    """Another executor's passes over micro-batches, with the results of one over the whole batch.

    Outputs with a slice for each sample are concatenated. Means and sums over samples, such as a loss, and
    their gradients are summed, means weighted by the micro-batch's share of samples: loss and gradients are
    those of the whole batch up to rounding. Dropout draws a mask for each micro-batch.

    executor: of a network that does not mix samples; otherwise it is refused when a pass begins, with the
    nodes and reasons. Its events see each micro-batch. size: of the micro-batches, of which the last may be
    smaller; or the size of each, which must sum to the batch.

    """

    def __init__(self, executor: GraphExecutor, size: int | Sequence[int]) -> None:
        check_kind("executor", executor, GraphExecutor, "an executor of a Network, as from_onnx makes it")
        self._repeated = isinstance(size, (int, float))
        wanted = "samples a micro-batch, or the samples of each, such as (8, 8, 4)"
        self._sizes = (size,) if self._repeated else check_items("size", size, wanted)
        for each in self._sizes:
            check_count("the size of a micro-batch", each, 1)
        if not self._sizes:
            raise ConfigurationError("there are no sizes of micro-batches: give one, or one for each")
        self.executor = executor
        self._sums = executor.accumulator()
        super().__init__(executor.network, executor.library, executor.device, trained=executor.trained)

    draw_from = now_of("executor.draw_from")
    passes, go_on_from = now_of("executor.passes"), now_of("executor.go_on_from")

    def _build(self, made: Plan, loss: str | None, observer: Observer | None) -> Run:
        kinds = self._kinds(made, loss)
        sampled = {name for name in made.inputs if kinds.get(name) == SampleAxis(0)}
        if not sampled:
            raise ConfigurationError(
                f"no input of the network has an open first axis, {_listed(made.inputs)}: it takes no batch "
                "that could be divided"
            )
        outputs = {name: kinds.get(name, SHARED) for name in made.wanted}
        reached = {name for name, _ in self.network.gradient(loss)} if loss is not None else set()
        trained = tuple(name for name in self.trained if name in reached)
        weighted = loss is not None and outputs[loss] is not SUM
        needed = frozenset(made.inputs)

        def run(inputs: Arrays) -> dict[str, Array]:
            given = {name: value for name, value in inputs.items() if name in needed}
            batch = _batch_of(given, sampled)
            parts: list[dict[str, Array]] = []
            shares: list[float] = []
            self._sums.begin()
            begin = 0
            for size in self._parts(batch):
                part = {
                    name: value[begin : begin + size] if name in sampled else value
                    for name, value in given.items()
                }
                begin += size
                shares.append(size / max(batch, 1))
                if loss is None:
                    parts.append(self.executor.inference(part))
                else:
                    parts.append(self.executor.inference_and_backprop(part, loss))
                    self._sums.add(trained, shares[-1] if weighted else 1.0)
            self.forward_ns, self.backward_ns = self.executor.forward_ns, self.executor.backward_ns
            return {
                name: _joined([part[name] for part in parts], kind, shares) for name, kind in outputs.items()
            }

        return run

    def _kinds(self, made: Plan, loss: str | None) -> Mapping[str, Kind]:
        """The kinds of the tensors. Raises `ConfigurationError` for nodes that mix samples, all of them."""
        found = whereabouts(self.network, [node for _, node in made.nodes], training=loss is not None)
        if found.mixing:
            (first, why), *more = found.mixing.items()
            others = f"; so do {len(more)} other nodes" if more else ""
            raise ConfigurationError(
                f"the network cannot be computed in micro-batches, the node {self.network.node(first)} mixes "
                f"samples: {why}{others}"
            )
        for name in made.wanted:
            kind = found.kinds.get(name, SHARED)
            if not isinstance(kind, SampleAxis) and kind not in (AVERAGE, SUM, SHARED):
                raise ConfigurationError(
                    f"the network cannot be computed in micro-batches: its output {name!r} is {kind.value}"
                )
        if loss is not None and isinstance(found.kinds.get(loss), SampleAxis):
            raise ConfigurationError(
                f"the loss {loss!r} has a value for each sample: add a node that reduces it, such as "
                "ReduceMean"
            )
        closed = [
            f"{name!r} ({self.network.inputs[name]})"
            for name in sample_inputs(self.network)
            if isinstance((self.network.inputs[name].shape or (None,))[0], int)
        ]
        if closed:
            raise ConfigurationError(
                f"the network takes batches of one size alone, by its input {closed[0]}: let the first axis "
                "be open, such as 'batch', when it is made"
            )
        return found.kinds

    def _parts(self, batch: int) -> Sequence[int]:
        """The sizes of the parts of a batch."""
        if not self._repeated:
            if sum(self._sizes) != batch:
                raise ConfigurationError(
                    f"the batch has {batch} samples, and the micro-batches of {_listed(self._sizes)} add up "
                    f"to {sum(self._sizes)}: give one size for all of them, or batches of this size"
                )
            return self._sizes
        (size,) = self._sizes
        whole, rest = divmod(batch, size)
        return [*[size] * whole, *[rest] * bool(rest)] or [0]

    # What is held, the other executor holds.

    def _draws(self, made: Plan) -> bool:
        return False

    def _load(self, name: str, value: Array) -> None:
        pass

    def _value(self, name: str) -> Array:
        found = self.executor.fetch(name)
        return np.array(self.network.constants[name]) if found is None else found

    def _gradient(self, parameter: str) -> Array:
        found = self._sums.gradient(parameter)
        return np.zeros_like(self.network.parameters[parameter]) if found is None else found


def _batch_of(inputs: Arrays, sampled: set[str]) -> int:
    """The number of samples in all inputs that have some."""
    found = {name: len(inputs[name]) for name in inputs if name in sampled}
    (first, batch), *others = found.items()
    for name, size in others:
        if size != batch:
            raise ConfigurationError(
                f"the input {first!r} has {batch} samples, and {name!r} {size}: give inputs that agree"
            )
    return batch


def _joined(values: Sequence[Array], kind: Kind, shares: Sequence[float]) -> Array:
    """The value that the whole batch would give."""
    if len(values) == 1 or kind is SHARED:
        return values[0]
    if isinstance(kind, SampleAxis):
        return np.concatenate(values, axis=kind.axis)
    weights = shares if kind is AVERAGE else [1.0] * len(values)
    total: Any = sum(np.asarray(value, np.float64) * w for value, w in zip(values, weights, strict=True))
    return np.asarray(total).astype(values[0].dtype)


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(map(str, values)) or "none"
