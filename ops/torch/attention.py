"""Attention and RotaryEmbedding"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.torch.attention_mask import Mask
from d5ray.ops.torch.builders import asked
from d5ray.ops.torch.types import ONNX_TYPES

_AFTER_SOFTCAP, _AFTER_BIAS, _AFTER_SOFTMAX = 1, 2, 3  # what qk_matmul_output may be; 0: the product itself


def attention(context: NodeContext) -> Kernel:
    """softmax(Q K' · scale + mask) V, for every head (arXiv:1706.03762).

    PyTorch's scaled_dot_product_attention computes it, unless scores are capped, are asked for, or have a
    precision of their own.
    """
    q_heads, kv_heads = context.attribute("q_num_heads"), context.attribute("kv_num_heads")
    mask, scale = Mask(context), context.attribute("scale")
    own_precision = context.attribute("softmax_precision", 1) != 1  # PyTorch's kernels have float32 or better
    written_out = bool(context.attribute("softcap", 0.0)) or context.has_output(3) or own_precision
    if not written_out and mask.plain and not any(map(context.has_input, (3, 4, 5, 6))):
        causal = mask.causal

        def plain(q: Tensor, k: Tensor, v: Tensor, *none: None) -> Any:
            flat = q.dim() == 3
            if flat:
                q, k, v = _heads(q, q_heads), _heads(k, kv_heads), _heads(v, kv_heads)
            grouped = q.shape[1] != k.shape[1]
            y = F.scaled_dot_product_attention(q, k, v, None, 0.0, causal, scale=scale, enable_gqa=grouped)
            return y.transpose(1, 2).flatten(2) if flat else y, k, v

        return asked(context, plain)

    def attention(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        given: Tensor | None = None,
        past_key: Tensor | None = None,
        past_value: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> Any:
        flat = q.dim() == 3
        if flat:  # (batch, positions, heads · size)
            q, k, v = _heads(q, q_heads), _heads(k, kv_heads), _heads(v, kv_heads)
        past = 0
        if past_key is not None and past_value is not None:
            past = past_key.shape[2]
            k, v = torch.cat((past_key, k), 2), torch.cat((past_value, v), 2)
        scores = None
        if written_out:
            y, scores = _written_out(context, q, k, v, mask.bias(q, k, given, past, lengths), scale)
        else:
            bias, causal = mask.for_kernel(q, k, given, past, lengths)
            grouped = q.shape[1] != k.shape[1]
            y = F.scaled_dot_product_attention(q, k, v, bias, 0.0, causal, scale=scale, enable_gqa=grouped)
        if flat:
            y = y.transpose(1, 2).flatten(2)
        return y, k, v, scores

    return asked(context, attention)


def _heads(x: Tensor, heads: int) -> Tensor:
    """(batch, positions, heads · size) to (batch, heads, positions, size)."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)


def _written_out(
    context: NodeContext, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float | None
) -> tuple[Tensor, Tensor]:
    """The output, and the scores as they were at the point that the node names."""
    stage, cap = context.attribute("qk_matmul_output_mode", 0), context.attribute("softcap", 0.0)
    if q.shape[1] != k.shape[1]:
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    root = (q.shape[-1] ** -0.5 if scale is None else scale) ** 0.5
    scores = shown = (q * root) @ (k * root).transpose(2, 3)
    if cap:
        scores = cap * torch.tanh(scores / cap)
        shown = scores if stage == _AFTER_SOFTCAP else shown
    if bias is not None:
        scores = scores + bias
    if stage == _AFTER_BIAS:
        shown = scores
    precision = ONNX_TYPES.get(context.attribute("softmax_precision"), scores.dtype)
    empty = (scores == -torch.inf).all(-1, keepdim=True)  # nothing to attend to: 0, not NaN
    weights = torch.softmax(scores.masked_fill(empty, 0).to(precision), -1).to(q.dtype).masked_fill(empty, 0)
    return weights @ v, weights if stage == _AFTER_SOFTMAX else shown


def rotary_embedding(context: NodeContext) -> Kernel:
    """Pairs of elements turned by an angle that grows with the position (arXiv:2104.09864).

    x: (batch, heads, positions, size) or (batch, positions, heads · size). The pairs are neighbours if
    `interleaved`, and otherwise the elements of the first and second half of what is turned.
    """
    heads, turned = context.attribute("num_heads", 0), context.attribute("rotary_embedding_dim", 0)
    interleaved = bool(context.attribute("interleaved", 0))

    def rotary_embedding(x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor | None = None) -> Tensor:
        flat = x.dim() == 3
        each = _heads(x, heads) if flat else x  # (batch, heads, positions, size)
        if positions is not None:
            cos, sin = F.embedding(positions, cos), F.embedding(positions, sin)
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)  # (batch, 1, positions, size / 2)
        size = turned or each.shape[-1]
        part, rest = each[..., :size], each[..., size:]
        if interleaved:
            a, b = part[..., 0::2], part[..., 1::2]
            result = torch.stack((cos * a - sin * b, sin * a + cos * b), -1).flatten(-2)
        else:
            a, b = part.chunk(2, -1)
            result = torch.cat((cos * a - sin * b, sin * a + cos * b), -1)
        result = torch.cat((result, rest), -1) if rest.shape[-1] else result
        return result.transpose(1, 2).flatten(2) if flat else result

    return rotary_embedding


FACTORIES: Mapping[str, KernelFactory] = {"Attention": attention, "RotaryEmbedding": rotary_embedding}
