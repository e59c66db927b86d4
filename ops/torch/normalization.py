"""Normalization over batches, layers, instances, groups, and by the root mean square"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.torch.builders import asked
from d5ray.ops.torch.types import known_sizes


def batch_normalization(context: NodeContext) -> Kernel:
    """BatchNormalization with the batch's statistics in training, and with the running ones otherwise.

    The running variance that comes out follows the population variance of the batch, as ONNX has it;
    PyTorch's own, in place, follows the sample variance.
    """
    epsilon, momentum = context.attribute("epsilon", 1e-5), context.attribute("momentum", 0.9)
    outputs = len(context.node.outputs)
    if context.evaluating or not context.attribute("training_mode", 0):

        def of_running(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Any:
            y = torch.batch_norm(x, scale, bias, mean, variance, False, 0.0, epsilon, True)
            return y, mean, variance

        return asked(context, of_running)

    if outputs == 1:

        def of_batch(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
            return torch.batch_norm(x, scale, bias, None, None, True, 0.0, epsilon, True)

        return of_batch

    def of_batch_with_running(
        x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[Tensor, ...]:
        count = x.numel() // x.shape[1]
        if count == 1:  # its sample variance would be 0 / 0
            y = torch.batch_norm(x, scale, bias, None, None, True, 0.0, epsilon, True)
            own = x.detach().reshape(mean.shape).to(mean.dtype)
            return (y, torch.lerp(own, mean, momentum), variance * momentum)[:outputs]
        share = (count - 1) / count  # of the sample variance, which PyTorch adds, the population's is this
        next_mean, next_variance = mean.clone(), variance / share
        y = torch.batch_norm(x, scale, bias, next_mean, next_variance, True, 1 - momentum, epsilon, True)
        return (y, next_mean, next_variance * share)[:outputs]

    return of_batch_with_running


def group_normalization(context: NodeContext) -> Kernel:
    """γ (x − mean) / √(variance + ε) + β within groups of channels   (Wu and He, arXiv:1803.08494)."""
    groups, epsilon = context.required("num_groups"), context.attribute("epsilon", 1e-5)

    def group_norm(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        return F.group_norm(x, groups, scale, bias, epsilon)

    return group_norm


def instance_normalization(context: NodeContext) -> Kernel:
    """γ (x − mean) / √(variance + ε) + β within every channel of a sample   (arXiv:1607.08022)."""
    epsilon = context.attribute("epsilon", 1e-5)

    def instance_norm(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        return torch.instance_norm(x, scale, bias, None, None, True, 0.0, epsilon, True)

    return instance_norm


def local_response_normalization(context: NodeContext) -> Kernel:
    """x / (bias + α/size Σ x²)^β, Σ over `size` channels around each, one more after it if size is even."""
    size, bias = context.required("size"), context.attribute("bias", 1.0)
    alpha, beta = context.attribute("alpha", 1e-4), context.attribute("beta", 0.75)
    before, after = (size - 1) // 2, size // 2

    def local_response_norm(x: Tensor) -> Tensor:
        squares = F.pad((x * x).flatten(2).unsqueeze(1), (0, 0, before, after))  # (batch, 1, channels, …)
        means = F.avg_pool2d(squares, (size, 1), stride=1).reshape(x.shape)
        result: Tensor = x / (bias + alpha * means) ** beta
        return result

    return local_response_norm


def layer_normalization(context: NodeContext) -> Kernel:
    """LayerNormalization over all axes from `axis` on; also the mean and 1 / the deviation of each."""
    axis, epsilon = context.attribute("axis", -1), context.attribute("epsilon", 1e-5)
    with_statistics = len(context.node.outputs) > 1
    known = known_sizes(context, 0, axis)
    if not with_statistics and known is not None and _scaled_by(context, known):

        def layer_norm_of_known(x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
            return torch.layer_norm(x, known, scale, bias, epsilon)

        return layer_norm_of_known

    def layer_norm(x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Any:
        shape = x.shape[axis:]
        within = scale.shape == shape and (bias is None or bias.shape == shape)
        weight, shift = (scale, bias) if within else (None, None)
        y = torch.layer_norm(x, shape, weight, shift, epsilon)
        if not within:
            y = y * scale if bias is None else y * scale + bias
        return (y, *_statistics(x, len(shape), epsilon)) if with_statistics else (y,)

    return asked(context, layer_norm)


def _scaled_by(context: NodeContext, sizes: tuple[int, ...]) -> bool:
    """True if scale and bias have the shape of what is normalized, and need not be broadcast."""
    return all(known_sizes(context, index) == sizes for index in (1, 2) if context.has_input(index))


def _statistics(x: Tensor, axes: int, epsilon: float) -> tuple[Tensor, Tensor]:
    """Mean and 1 / the deviation, with gradients; ONNX has those of halves in float32."""
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    variance, mean = torch.var_mean(wide, tuple(range(-axes, 0)), correction=0, keepdim=True)
    return mean, (variance + epsilon).rsqrt()


def lp_normalization(context: NodeContext) -> Kernel:
    """x / ‖x‖ along an axis, and 0 where all is 0."""
    axis, p = context.attribute("axis", -1), context.attribute("p", 2)

    def normalize(x: Tensor) -> Tensor:
        norm: Tensor = torch.linalg.vector_norm(x, p, axis, keepdim=True)
        return x / norm.masked_fill(norm == 0, 1)

    return normalize


def mean_variance_normalization(context: NodeContext) -> Kernel:
    """(x − mean) / (deviation + 10⁻⁹), as ONNX's function body has it."""
    axes = tuple(context.attribute("axes", (0, 2, 3)))

    def mean_variance_norm(x: Tensor) -> Tensor:
        deviation, mean = torch.std_mean(x, axes, correction=0, keepdim=True)
        return (x - mean) / (deviation + 1e-9)

    return mean_variance_norm


def rms_normalization(context: NodeContext) -> Kernel:
    """x / √(mean of x² + ε) over all axes from `axis` on, scaled."""
    axis, epsilon = context.attribute("axis", -1), context.attribute("epsilon", 1e-5)
    known = known_sizes(context, 0, axis)
    if known is not None and _scaled_by(context, known):

        def rms_norm_of_known(x: Tensor, scale: Tensor) -> Tensor:
            return torch.rms_norm(x, known, scale, epsilon)

        return rms_norm_of_known

    def rms_norm(x: Tensor, scale: Tensor) -> Tensor:
        shape = x.shape[axis:]
        if scale.shape == shape:
            return torch.rms_norm(x, shape, scale, epsilon)
        return torch.rms_norm(x, shape, None, epsilon) * scale

    return rms_norm


FACTORIES: Mapping[str, KernelFactory] = {
    "BatchNormalization": batch_normalization,
    "GroupNormalization": group_normalization,
    "InstanceNormalization": instance_normalization,
    "LRN": local_response_normalization,
    "LayerNormalization": layer_normalization,
    "LpNormalization": lp_normalization,
    "MeanVarianceNormalization": mean_variance_normalization,
    "RMSNormalization": rms_normalization,
}
