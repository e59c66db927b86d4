"""Attention and RotaryEmbedding"""

from collections.abc import Mapping
from typing import Any

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.tensors import Size, Tensor, outputs, sizes, type_of

MINUS_INFINITY = float("-inf")


def _attention(context: NodeContext) -> Kernel:
    """softmax(Q K' · scale + bias) V, head by head   (Vaswani et al., arXiv:1706.03762)

    With fewer heads of keys and values than of queries, every one of them serves a group (arXiv:2305.13245).
    The bias hides keys: those that attn_mask names, that come after the query (is_causal), that lie
    outside of its window, or that are padding. A query from which every key is hidden gets 0.
    """
    softcap, mode = context.attribute("softcap", 0.0), context.attribute("qk_matmul_output_mode", 0)
    precision = context.attribute("softmax_precision")
    bias_of = _bias(context)
    windowed = any(context.attribute(f"{side}_window_size", -1) >= 0 for side in ("left", "right"))

    def call(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        past_key: Tensor | None = None,
        past_value: Tensor | None = None,
        valid: Tensor | None = None,
    ) -> Any:
        flat = q.shape.rank == 3
        if flat:
            q, k, v = _by_heads(context, q, "q"), _by_heads(context, k, "kv"), _by_heads(context, v, "kv")
        key = k if past_key is None else tf.concat([past_key, k], 2)
        value = v if past_value is None else tf.concat([past_value, v], 2)
        scores = _scores(context, q, key)
        capped = softcap * tf.tanh(scores / softcap) if softcap else scores
        past = 0 if past_key is None else sizes(past_key)[2]
        bias = bias_of(capped, mask, past, valid)
        biased = capped if bias is None else capped + bias
        # Who is only kept from what comes later sees the first key at least.
        always_some = mask is None and valid is None and not windowed
        shares = _softmax(biased, None if always_some else bias, precision)
        y = tf.matmul(shares, _for_queries(context, value, q))
        if flat:
            y = tf.transpose(y, [0, 2, 1, 3])
            y = tf.reshape(y, [*sizes(y)[:2], y.shape[2] * y.shape[3]])
        seen = [scores, capped, biased, shares][mode] if context.has_output(3) else None
        return outputs(context, [y, key, value, seen])

    return call


def _scores(context: NodeContext, q: Tensor, key: Tensor) -> Tensor:
    """Q K' · scale, (batch, heads, queries, keys)

    ONNX has the root of the scale on either side, so that 16-bit numbers do not overflow.
    """
    scale = context.attribute("scale")
    if q.dtype.size > 2:
        whole = tf.cast(sizes(q)[3], q.dtype) ** -0.5 if not scale else tf.cast(scale, q.dtype)
        return tf.matmul(q * whole, _for_queries(context, key, q), transpose_b=True)
    half = tf.cast(sizes(q)[3], q.dtype) ** -0.25 if not scale else tf.cast(scale**0.5, q.dtype)
    return tf.matmul(q * half, _for_queries(context, key * half, q), transpose_b=True)


def _by_heads(context: NodeContext, x: Tensor, kind: str) -> Tensor:
    """(batch, length, heads · size) as (batch, heads, length, size)."""
    heads, shape = context.required(f"{kind}_num_heads"), sizes(x)
    return tf.transpose(tf.reshape(x, [*shape[:2], heads, shape[2] // heads]), [0, 2, 1, 3])


def _for_queries(context: NodeContext, x: Tensor, q: Tensor) -> Tensor:
    """Keys or values with as many heads as the queries have: each stands for a group of neighbours."""
    heads, own = q.shape[1], x.shape[1]
    if heads == own:
        return x
    if heads % own:
        raise ConfigurationError(
            f"the node {context.node} has {heads} heads of queries and {own} of keys and values: the first "
            "must be a multiple of the second"
        )
    return tf.repeat(x, heads // own, axis=1)


def _bias(context: NodeContext) -> Any:
    """The function that builds the bias for scores (batch, heads, queries, keys); None if none is hidden."""
    causal = bool(context.attribute("is_causal", 0))
    left, right = context.attribute("left_window_size", -1), context.attribute("right_window_size", -1)

    def build(scores: Tensor, mask: Tensor | None, past: Size, valid: Tensor | None) -> Tensor | None:
        queries, keys = sizes(scores)[2:]
        hidden = tf.constant(MINUS_INFINITY, scores.dtype)
        zero = tf.zeros((), scores.dtype)
        bias = None if mask is None else _mask_bias(mask, keys, scores.dtype)
        column = tf.range(keys)
        before = past if valid is None else tf.reshape(tf.cast(valid, tf.int32), [-1, 1, 1, 1]) - queries
        distance = tf.range(queries)[:, tf.newaxis] + before - column  # of every query from every key
        seen = [
            *([distance >= 0] if causal else []),
            *([distance <= left] if left >= 0 else []),
            *([-distance <= right] if right >= 0 else []),
            *([] if valid is None else [column < tf.reshape(tf.cast(valid, tf.int32), [-1, 1, 1, 1])]),
        ]
        for allowed in seen:
            bias = tf.where(allowed, zero if bias is None else bias, hidden)
        return bias

    return build


def _mask_bias(mask: Tensor, keys: Size, dtype: Any) -> Tensor:
    """The mask as what is added to scores, as long as there are keys."""
    if mask.dtype == tf.bool:
        mask = tf.where(mask, tf.zeros((), dtype), tf.constant(MINUS_INFINITY, dtype))
    missing = keys - sizes(mask)[-1]
    if isinstance(missing, int) and missing == 0:
        return mask
    return tf.pad(mask, [(0, 0)] * (mask.shape.rank - 1) + [(0, missing)], constant_values=MINUS_INFINITY)


def _softmax(scores: Tensor, bias: Tensor | None, precision: int | None) -> Tensor:
    """The softmax over the keys; 0 for a query to which the bias leaves none, in the gradient too."""
    wide = scores if precision is None else tf.cast(scores, type_of(precision))
    if bias is None:
        return tf.cast(tf.nn.softmax(wide), scores.dtype)
    none = tf.equal(tf.reduce_max(bias, -1, keepdims=True), MINUS_INFINITY)
    shares = tf.nn.softmax(tf.where(none, tf.zeros_like(wide), wide))
    return tf.cast(tf.where(none, tf.zeros_like(wide), shares), scores.dtype)


def _rotary_embedding(context: NodeContext) -> Kernel:
    """Pairs of numbers turned by an angle that grows with the position   (Su et al., arXiv:2104.09864)"""
    width, heads = context.attribute("rotary_embedding_dim", 0), context.attribute("num_heads")
    interleaved = bool(context.attribute("interleaved", 0))

    def call(x: Tensor, cosines: Tensor, sines: Tensor, positions: Tensor | None = None) -> Tensor:
        if positions is not None:
            cosines, sines = tf.gather(cosines, positions), tf.gather(sines, positions)
        shape = sizes(x)
        if x.shape.rank == 3:
            if not heads:
                raise ConfigurationError(f"the node {context.node} lacks num_heads, which a 3-d input needs")
            x = tf.reshape(x, [*shape[:2], heads, shape[2] // heads])
            cosines, sines = cosines[:, :, tf.newaxis], sines[:, :, tf.newaxis]
        else:
            cosines, sines = cosines[:, tf.newaxis], sines[:, tf.newaxis]
        turned = width or sizes(x)[3]
        y = _turned(x[..., :turned], cosines, sines, interleaved)
        y = tf.concat([y, x[..., turned:]], -1) if width else y
        return tf.reshape(y, shape) if len(shape) == 3 else y

    return call


def _turned(x: Tensor, cosines: Tensor, sines: Tensor, interleaved: bool) -> Tensor:
    if interleaved:
        first, second = x[..., 0::2], x[..., 1::2]
        pair = [cosines * first - sines * second, sines * first + cosines * second]
        return tf.reshape(tf.stack(pair, -1), tf.shape(x))
    first, second = tf.split(x, 2, -1)
    return tf.concat([cosines * first - sines * second, sines * first + cosines * second], -1)


FACTORIES: Mapping[str, KernelFactory] = {"Attention": _attention, "RotaryEmbedding": _rotary_embedding}
