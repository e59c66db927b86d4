"""An executor that computes a step's batch in pieces, one after the other, and adds up their gradients"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final

import numpy as np

from d5ray.networks.executors.executor import Executor, WrappedExecutor
from d5ray.networks.executors.flat_buffers import Slot
from d5ray.networks.executors.gradient_buckets import OnReady
from d5ray.networks.executors.trees import rows
from d5ray.operators.loss import Loss


@final
class AccumulatingExecutor(WrappedExecutor):
    """A wrapper that gives another executor a batch in pieces of nearly equal size.

    L = Σᵢ cᵢ Lᵢ / Σᵢ cᵢ, and so the gradient, where piece i has the mean loss Lᵢ over cᵢ labels that count,
    or the weight cᵢ that the loss has given: those of the whole batch but for rounding, whatever the sizes.
    Ranges are announced while the backward pass of the last piece goes on. Everything that a model computes
    over a batch, such as the statistics of a BatchNorm, goes by the piece.

    pieces: for a full batch; at_most: samples of a piece where that is known, so that fewer are made of a
    remainder, and more of a batch that is larger.
    """

    def __init__(self, inner: Executor, loss: Loss, pieces: int, at_most: int | None = None) -> None:
        super().__init__(inner)
        self._loss, self._count, self._at_most = loss, pieces, at_most
        self._sum: Any = None  # (n,), of all pieces but the last
        self._unused: dict[str, Slot] = {}  # by every piece
        self._earlier = 0.0  # the weight of the pieces before the last

    def inference_and_backprop(
        self, inputs: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], on_ready: OnReady | None = None
    ) -> float:
        pieces = list(self._pieces(inputs, labels))
        pieces = [piece for piece in pieces if piece.counted] or pieces[:1]
        self._unused, self._earlier = {slot.name: slot for slot in self.slots}, 0.0
        if len(pieces) == 1:
            return self._passed(pieces[0], on_ready)
        whole = sum(piece.counted for piece in pieces)
        *before, last = pieces
        loss = 0.0
        for at, piece in enumerate(before):
            own = self._passed(piece, None)
            share = self._share(piece, whole)
            loss += share * own
            self._add(share, first=at == 0)
            self._earlier += self._inner.weight or 0.0
        return self._last(last, whole, loss, on_ready)

    def _pieces(self, inputs: Any, labels: Any) -> Iterator["_Piece"]:
        """The pieces of a batch, whose sizes differ by one at most."""
        samples, loss = len(labels), self._inner.counting(self._loss, inputs, labels)
        count = min(self._count, samples) if self._at_most is None else -(-samples // self._at_most)
        bounds = [samples * at // count for at in range(count + 1)]
        for begin, end in pairwise(bounds):
            given, truth = (rows(tree, slice(begin, end)) for tree in (inputs, labels))
            counted = loss.counted(truth) if isinstance(truth, np.ndarray) else end - begin
            yield _Piece(given, truth, counted)

    def _passed(self, piece: "_Piece", on_ready: OnReady | None) -> float:
        """A pass of the inner executor."""
        inner = self._inner
        if self._buckets is not None:
            inner._buckets = self._buckets  # that were set here
        loss = inner.inference_and_backprop(piece.inputs, piece.labels, on_ready)
        self.forward_ns, self.backward_ns = inner.forward_ns, inner.backward_ns
        self._unused = {slot.name: slot for slot in inner.unused if slot.name in self._unused}
        return loss

    @property
    def weight(self) -> float | None:  # type: ignore[override]
        """The weight of all pieces so far."""
        own = self._inner.weight
        return own if own is None else self._earlier + own

    def _share(self, piece: "_Piece", whole: int) -> float:
        """The share of a piece that has been passed: of the whole, or its weight where the loss gives it."""
        weight = self._inner.weight if self._loss.weighted is None else None
        return piece.counted / whole if weight is None else weight

    @property
    def unused(self) -> tuple[Slot, ...]:  # type: ignore[override]
        """The parameters that got a gradient in no piece."""
        return tuple(self._unused.values())

    def take_released(self) -> None:
        super().take_released()
        self._sum = None

    def _add(self, share: float, *, first: bool) -> None:
        gradients = self.gradients
        gradients *= share
        if self._sum is None:
            self._sum = gradients * 1
        elif first:
            self._sum[...] = gradients
        else:
            self._sum += gradients

    def _last(self, piece: "_Piece", whole: int, loss: float, on_ready: OnReady | None) -> float:
        """The pass of the last piece, whose gradients become the sum of all; loss: of those before."""
        gradients, before = self.gradients, self._sum

        def divisor() -> float:
            return (self.weight or 1.0) if self._loss.weighted is None else 1.0

        def complete(begin: int, end: int) -> None:
            part = gradients[begin:end]
            part *= self._share(piece, whole)
            part += before[begin:end]
            if (total := divisor()) != 1.0:
                part /= total
            if on_ready is not None:
                on_ready(begin, end)

        own = self._passed(piece, None if on_ready is None else complete)
        if on_ready is None:
            complete(0, len(gradients))
        return (loss + self._share(piece, whole) * own) / divisor()


@dataclass(frozen=True)
class _Piece:
    """Some of a batch's samples; counted: of their labels, by the loss."""

    inputs: Any
    labels: Any
    counted: int
