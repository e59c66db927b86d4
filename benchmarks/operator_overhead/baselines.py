"""What a framework's user writes for DeepBench's products and convolutions, without d5ray"""

from typing import Any, Final

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.kernel_factory import Kernel
from d5ray.ops.problem import Problem


def native(framework: str, problem: Problem) -> Kernel:
    """The framework's own function for a Gemm or a Conv, on the same arrays."""
    known: Any = NATIVES.get((framework, problem.node.type))
    if known is None:
        raise ConfigurationError(
            f"there is no native {problem.node.type} of {framework} to compare with: take a Gemm or a Conv "
            "of torch or tensorflow"
        )
    made: Kernel = known(dict(problem.node.attributes))
    return made


def _torch_product(attributes: dict[str, Any]) -> Kernel:
    import torch  # noqa: PLC0415 - the peer

    if attributes["transA"]:
        return lambda a, b: torch.mm(a.t(), b)
    if attributes["transB"]:
        return lambda a, b: torch.mm(a, b.t())
    return torch.mm


def _torch_convolution(attributes: dict[str, Any]) -> Kernel:
    from torch.nn.functional import conv2d  # noqa: PLC0415 - the peer

    stride, padding = attributes["strides"][0], attributes["pads"][0]
    return lambda x, w: conv2d(x, w, stride=stride, padding=padding)


def _tensorflow_product(attributes: dict[str, Any]) -> Kernel:
    import tensorflow as tf  # noqa: PLC0415 - the peer

    first, second = bool(attributes["transA"]), bool(attributes["transB"])
    return lambda a, b: tf.matmul(a, b, transpose_a=first, transpose_b=second)


def _tensorflow_convolution(attributes: dict[str, Any]) -> Kernel:
    """On a CPU TensorFlow has channels last alone: whoever has them first transposes, as both sides do."""
    import tensorflow as tf  # noqa: PLC0415 - the peer

    stride, padding = attributes["strides"][0], attributes["pads"][0]
    pads = [[0, 0], [padding, padding], [padding, padding], [0, 0]]

    def call(x: Any, w: Any) -> Any:
        last, filters = tf.transpose(x, (0, 2, 3, 1)), tf.transpose(w, (2, 3, 1, 0))
        return tf.transpose(tf.nn.conv2d(last, filters, stride, pads), (0, 3, 1, 2))

    return call


NATIVES: Final = {
    ("torch", "Gemm"): _torch_product,
    ("torch", "Conv"): _torch_convolution,
    ("tensorflow", "Gemm"): _tensorflow_product,
    ("tensorflow", "Conv"): _tensorflow_convolution,
}
