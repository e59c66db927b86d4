"""Attention's bias: added to the scores, so that each query looks only where it may"""

from collections.abc import Sequence
from typing import Any

from d5ray.operators.array_operator import Array
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.formula import summed_to_shape
from d5ray.ops.arrays.wide import optional

MASK, PAST_KEY, LENGTHS = 3, 4, 6  # optional inputs


def attention_bias(
    xp: Any, context: NodeContext, inputs: Sequence[Array | None], shape: tuple[int, ...], dtype: Any
) -> Array | None:
    """The bias that is added to the scores, broadcast to their shape (B, Hq, S, L); None if there is none.

    A mask of numbers counts as it is, one of booleans as 0 and −inf; where it is too short, −inf.
    Query i, which stands at the position p = offset + i, may look at key j unless is_causal forbids j > p,
    left_window_size j < p − left, right_window_size j > p + right, or nonpad_kv_seqlen j ≥ the sequence's
    length. offset: the length of the past, or for every sequence its length − S where that is given, or 0.
    """
    queries, keys = shape[-2:]
    mask, lengths, past = (optional(inputs, index) for index in (MASK, LENGTHS, PAST_KEY))
    bias = None
    if mask is not None:
        bias = xp.where(mask, 0, -xp.inf).astype(dtype) if mask.dtype == bool else mask
        bias = _lengthened(xp, bias, keys)
    allowed = _window(xp, context, queries, keys, past, lengths)
    if lengths is not None:
        real = (xp.arange(keys) < lengths.reshape(-1, 1))[:, None, None, :]
        allowed = real if allowed is None else allowed & real
    if allowed is None:
        return bias
    barred = xp.where(allowed, 0, -xp.inf).astype(dtype)
    return barred if bias is None else bias + barred


def of_mask(of_scores: Array, mask: Array) -> Array:
    """The gradient of the mask, from that of the scores that it was added to."""
    return summed_to_shape(of_scores[..., : mask.shape[-1]], mask.shape)


def _window(
    xp: Any, context: NodeContext, queries: int, keys: int, past: Array | None, lengths: Array | None
) -> Array | None:
    """True where the positions allow it (S, L) or (B, 1, S, L); None if they allow everything."""
    left, right = (
        int(context.attribute("left_window_size", -1)),
        int(context.attribute("right_window_size", -1)),
    )
    if context.attribute("is_causal", 0):
        right = 0
    if left < 0 and right < 0:
        return None
    offset: Any = 0
    if past is not None:
        offset = past.shape[2]
    elif lengths is not None:
        offset = (lengths.reshape(-1) - queries)[:, None, None, None]
    ahead = xp.arange(keys) - (xp.arange(queries)[:, None] + offset)  # of the query
    if left < 0:
        return ahead <= right
    return ahead >= -left if right < 0 else (ahead >= -left) & (ahead <= right)


def _lengthened(xp: Any, mask: Array, keys: int) -> Array:
    """The mask with −inf for the keys that it does not reach."""
    missing = keys - mask.shape[-1]
    if missing <= 0:
        return mask
    rest = xp.full((*mask.shape[:-1], missing), -xp.inf, dtype=mask.dtype)
    return xp.concatenate((mask, rest), axis=-1)
