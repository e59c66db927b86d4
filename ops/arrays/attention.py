"""Attention and RotaryEmbedding"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.operators.tensors.tensor_descriptor import element_type
from d5ray.ops.arrays.attention_bias import attention_bias, of_mask
from d5ray.ops.arrays.rotary import RotaryEmbedding
from d5ray.ops.arrays.wide import WideOperator, gradient_of, kept, optional, outputs_and_kept

PAST_KEY, PAST_VALUE = 4, 5  # optional inputs
RAW, CAPPED, BIASED, PROBABILITIES = range(4)  # what the fourth output is, by qk_matmul_output_mode
SOFTMAX_TYPES = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}  # as ONNX numbers them


@final
class Attention(WideOperator):
    """Y = softmax(softcap(scale · Q Kᵀ) + bias) V   (Vaswani et al., arXiv:1706.03762).

    Q (B, S, Hq·D) or (B, Hq, S, D); K, V likewise with H heads, Hq a multiple of H: that many query heads
    share one (arXiv:2305.13245). past_key and past_value (B, H, P, D) stand before K and V, and with them are
    the outputs present_key, present_value. bias: `attention_bias`. A query that may look at nothing gives 0.
    The fourth output is scale · Q Kᵀ, or that with softcap, or with bias too, or the softmax.
    """

    needs = 3
    types = MappingProxyType({2: 2})

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        query, key, value = _heads(xp, context, inputs)  # (B, H, Hq / H, S, D), (B, H, L, D) twice
        root = query.dtype.type(np.sqrt(_scale(context, query)))
        raw = _joined(xp.matmul(query * root, (key * root).swapaxes(-1, -2)[:, :, None]))  # (B, Hq, S, L)
        cap = context.attribute("softcap", 0.0)
        capped = xp.tanh(raw / cap) * cap if cap > 0 else raw
        bias = attention_bias(xp, context, inputs, capped.shape, capped.dtype)
        biased = capped if bias is None else capped + bias
        probabilities = _softmax(xp, context, biased, bias)
        y = _joined(xp.matmul(_grouped(probabilities, query), value[:, :, None]))
        if _flat(inputs):
            y = _side_by_side(y)
        mode = int(context.attribute("qk_matmul_output_mode", RAW))
        outputs = (y, key, value, (raw, capped, biased, probabilities)[mode])
        return outputs_and_kept(context, outputs, probabilities, capped)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        query, key, value = _heads(xp, context, inputs)
        probabilities, capped = kept(context, outputs)
        asked: list[Array | None] = [None] * 4  # the gradients of the fourth output, by its mode
        asked[int(context.attribute("qk_matmul_output_mode", RAW))] = gradient_of(gradients, 3)
        of_probabilities, of_value = xp.zeros_like(probabilities), xp.zeros_like(value)
        if (of_y := gradient_of(gradients, 0)) is not None:
            if _flat(inputs):
                of_y = _split(context, of_y, capped.shape[1])
            of_y = _grouped(of_y, query)
            of_value = xp.matmul(_grouped(probabilities, query).swapaxes(-1, -2), of_y).sum(axis=2)
            of_probabilities = _joined(xp.matmul(of_y, value.swapaxes(-1, -2)[:, :, None]))
        of_probabilities = _plus(of_probabilities, asked[PROBABILITIES])
        inner = (of_probabilities * probabilities).sum(axis=-1, keepdims=True)
        of_biased = _plus(probabilities * (of_probabilities - inner), asked[BIASED])
        of_raw = _plus(of_biased, asked[CAPPED])
        if (cap := context.attribute("softcap", 0.0)) > 0:
            of_raw = of_raw * (1 - xp.square(capped / cap))
        of_raw = _plus(of_raw, asked[RAW]) * query.dtype.type(_scale(context, query))
        of_raw = _grouped(of_raw, query)
        of_query = xp.matmul(of_raw, key[:, :, None])
        of_key = xp.matmul(of_raw.swapaxes(-1, -2), query).sum(axis=2)
        of_key = _plus(of_key, gradient_of(gradients, 1))
        of_value = _plus(of_value, gradient_of(gradients, 2))
        return _of_inputs(inputs, of_query, of_key, of_value, of_biased)


def _heads(xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> tuple[Array, Array, Array]:
    """The queries of every head of keys (B, H, Hq / H, S, D), the keys and the values with the past."""
    query, key, value = inputs[:3]
    assert query is not None and key is not None and value is not None
    if _flat(inputs):
        query_heads, heads = int(context.required("q_num_heads")), int(context.required("kv_num_heads"))
        query, key, value = (
            _split(context, each, count)
            for each, count in ((query, query_heads), (key, heads), (value, heads))
        )
    past_key, past_value = optional(inputs, PAST_KEY), optional(inputs, PAST_VALUE)
    if (past_key is None) != (past_value is None):
        raise ConfigurationError(f"{context.node} has one of past_key and past_value: give both or neither")
    if past_key is not None:
        key, value = xp.concatenate((past_key, key), axis=2), xp.concatenate((past_value, value), axis=2)
    if query.shape[1] % key.shape[1] or key.shape[1] != value.shape[1]:
        raise ConfigurationError(
            f"{context.node} has {query.shape[1]} heads of queries for {key.shape[1]} of keys and "
            f"{value.shape[1]} of values: the queries' must be a multiple of the others', which are equal"
        )
    of_each = query.shape[1] // key.shape[1]
    return query.reshape(query.shape[0], key.shape[1], of_each, *query.shape[2:]), key, value


def _split(context: NodeContext, array: Array, heads: int) -> Array:
    """(B, S, heads·D) -> (B, heads, S, D)."""
    if array.shape[2] % heads:
        raise ConfigurationError(
            f"{context.node} has {heads} heads for an input of {array.shape}: they must divide it"
        )
    return array.reshape(*array.shape[:2], heads, array.shape[2] // heads).swapaxes(1, 2)


def _side_by_side(array: Array) -> Array:
    """(B, heads, S, D) -> (B, S, heads·D)."""
    batch, heads, length, features = array.shape
    return array.swapaxes(1, 2).reshape(batch, length, heads * features)


def _joined(array: Array) -> Array:
    """(B, H, Hq / H, ...) -> (B, Hq, ...)."""
    return array.reshape(array.shape[0], array.shape[1] * array.shape[2], *array.shape[3:])


def _grouped(array: Array, query: Array) -> Array:
    """(B, Hq, S, ...) -> (B, H, Hq / H, S, ...), as the queries are."""
    return array.reshape(*query.shape[:4], array.shape[-1])


def _flat(inputs: Sequence[Array | None]) -> bool:
    """True if the heads lie side by side in three axes."""
    return inputs[0] is not None and inputs[0].ndim == 3


def _scale(context: NodeContext, query: Array) -> float:
    given = context.attribute("scale")
    return float(given) if given is not None else 1 / float(np.sqrt(query.shape[-1]))


def _softmax(xp: Any, context: NodeContext, scores: Array, bias: Array | None) -> Array:
    """The softmax over the last axis; 0 where the bias leaves nothing to look at."""
    precision = context.attribute("softmax_precision")
    wide = scores if precision is None else scores.astype(element_type(SOFTMAX_TYPES[int(precision)]))
    greatest = wide.max(axis=-1, keepdims=True)
    exponentials = xp.exp(wide - xp.where(greatest == -xp.inf, 0, greatest))
    total = exponentials.sum(axis=-1, keepdims=True)
    result = exponentials / xp.where(total == 0, 1, total)
    if bias is not None:
        result = xp.where(bias.max(axis=-1, keepdims=True) == -xp.inf, 0, result)
    return result.astype(scores.dtype, copy=False)


def _plus(gradient: Array, more: Array | None) -> Array:
    return gradient if more is None else gradient + more


def _of_inputs(
    inputs: Sequence[Array | None], of_query: Array, of_key: Array, of_value: Array, of_biased: Array
) -> Gradients:
    past = optional(inputs, PAST_KEY)
    length = 0 if past is None else past.shape[2]
    mask = optional(inputs, 3)
    new = [_joined(of_query), of_key[:, :, length:], of_value[:, :, length:]]
    if _flat(inputs):
        new = [*map(_side_by_side, new)]
    found = (
        *new,
        None if mask is None or mask.dtype == bool else of_mask(of_biased, mask),
        *((None, None) if past is None else (of_key[:, :, :length], of_value[:, :, :length])),
        None,
    )
    return found[: len(inputs)]


OPERATORS: Mapping[str, ArrayOperator] = {"Attention": Attention(), "RotaryEmbedding": RotaryEmbedding()}
