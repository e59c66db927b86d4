"""Outputs whose size the values decide: NonMaxSuppression and Unique; counts of n-grams"""

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients, WithoutGradient
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.element_types import is_floating
from d5ray.ops.arrays.known import checked_axis, numbers, on_host


@final
class NonMaxSuppression(WithoutGradient):
    """Boxes by falling score, of which none overlaps an earlier one by more than a threshold.

    boxes (batch, n, 4), scores (batch, classes, n), y (chosen, 3): batch, class, box. The overlap is the
    intersection over the union.
    """

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        boxes, scores = (on_host(each).astype("float64") for each in inputs[:2])
        most, overlap, least = ((numbers(context, inputs, i) or [None])[0] for i in (2, 3, 4))
        corners = _corners(boxes, bool(context.attribute("center_point_box", 0)))
        found = [
            (image, kind, box)
            for image, of_image in enumerate(scores)
            for kind, of_kind in enumerate(of_image)
            for box in _chosen(corners[image], of_kind, int(most or 0), float(overlap or 0.0), least)
        ]
        return (xp.asarray(found, dtype="int64").reshape(-1, 3),)


def _corners(boxes: "np.ndarray[Any, Any]", centred: bool) -> "np.ndarray[Any, Any]":
    """(…, 4): the least of both coordinates, the greatest of both."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if centred:
        first, second = first - second / 2, first + second / 2
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], axis=-1)


def _chosen(
    corners: "np.ndarray[Any, Any]", scores: "np.ndarray[Any, Any]", most: int, overlap: float, least: Any
) -> list[int]:
    areas = np.prod(corners[:, 2:] - corners[:, :2], axis=1)
    waiting = np.argsort(-scores, kind="stable")
    if least is not None:
        waiting = waiting[scores[waiting] > least]
    kept: list[int] = []
    while waiting.size and len(kept) < most:
        best, others = int(waiting[0]), waiting[1:]
        kept.append(best)
        low = np.maximum(corners[best, :2], corners[others, :2])
        high = np.minimum(corners[best, 2:], corners[others, 2:])
        common = np.prod(np.maximum(high - low, 0), axis=1)
        union = areas[best] + areas[others] - common
        waiting = others[~(common > overlap * union)]
    return kept


@final
class Unique(ArrayOperator):
    """The different elements, or slices on an axis: sorted, or in the order of their first places.

    Also the first places, where among the outputs each element stands, and how often it does; int64.
    """

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x = inputs[0]
        assert x is not None
        axis = context.attribute("axis")
        axis = None if axis is None else checked_axis(context, int(axis), x.ndim)
        x = on_host(x)
        y, first, inverse, counts = np.unique(
            x, return_index=True, return_inverse=True, return_counts=True, axis=axis
        )
        inverse = inverse.reshape(-1)
        if not context.attribute("sorted", 1):
            order = np.argsort(first)
            y = np.take(x.ravel() if axis is None else x, first[order], axis=axis or 0)
            inverse, first, counts = np.argsort(order)[inverse], first[order], counts[order]
        return xp.asarray(y), *(xp.asarray(each, dtype="int64") for each in (first, inverse, counts))

    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        """The gradient goes to the first of equal elements, which is the one that is taken."""
        dy, x = gradients[0], inputs[0]
        if dy is None or x is None or not is_floating(x):
            return (None,)
        _, first, *_ = self.forward(xp, context, inputs)
        axis = context.attribute("axis")
        dx = xp.zeros_like(x)
        if axis is None:
            dx.reshape(-1)[first] = dy
        else:
            xp.moveaxis(dx, axis, 0)[first] = xp.moveaxis(dy, axis, 0)
        return (dx,)


@final
class NGrams(WithoutGradient):
    """The counts of each n-gram of a pool in a row, also with elements left out between its own (skips).

    x (n,) or (batch, n), y (n-grams,) or (batch, n-grams): the counts (TF), whether there are any, times a
    weight (IDF), or the counts times weights (TFIDF).
    """

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x = on_host(inputs[0])
        rows = x.reshape(-1, x.shape[-1]) if x.ndim else x.reshape(1, 1)
        where = context.required("ngram_indexes")
        pool = _pool(context)
        counts = np.zeros((rows.shape[0], max(where) + 1), np.float32)
        shortest, longest = context.required("min_gram_length"), context.required("max_gram_length")
        skips = range(1, context.required("max_skip_count") + 2)
        for row, tokens in enumerate(rows.tolist()):
            for length in range(shortest, longest + 1):
                for step in skips if length > 1 else (1,):
                    for start in range(len(tokens) - (length - 1) * step):
                        gram = tuple(tokens[start : start + (length - 1) * step + 1 : step])
                        if gram in pool:
                            counts[row, where[pool[gram]]] += 1
        return (xp.asarray(_weighted(context, counts, where).reshape(*x.shape[:-1], -1)),)


def _pool(context: NodeContext) -> dict[tuple[int, ...], int]:
    """The n-grams, by length one behind the other, and their numbers."""
    tokens, starts = context.attribute("pool_int64s"), context.required("ngram_counts")
    if tokens is None:
        raise ConfigurationError(
            f"the node {context.node} has a pool of texts: give one of numbers, pool_int64s"
        )
    found: dict[tuple[int, ...], int] = {}
    for length, (start, end) in enumerate(zip(starts, (*starts[1:], len(tokens)), strict=True), 1):
        for place in range(start, end, length):
            found[tuple(tokens[place : place + length])] = len(found)
    return found


def _weighted(
    context: NodeContext, counts: "np.ndarray[Any, Any]", where: Sequence[int]
) -> "np.ndarray[Any, Any]":
    mode, weights = context.required("mode"), np.ones(counts.shape[1], np.float32)
    for place, weight in zip(where, context.attribute("weights") or (), strict=False):
        weights[place] = weight
    if mode == "TF":
        return counts
    return (np.minimum(counts, 1) if mode == "IDF" else counts) * weights


OPERATORS: Mapping[str, ArrayOperator] = {
    "NonMaxSuppression": NonMaxSuppression(),
    "TfIdfVectorizer": NGrams(),
    "Unique": Unique(),
}
