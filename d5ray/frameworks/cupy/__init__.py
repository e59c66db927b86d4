"""CuPy and NCCL; importing this imports neither"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from d5ray.ops.custom.arrays import ArrayOperation


def custom_op(op: Any) -> "ArrayOperation":
    """The operator as a function of CuPy arrays, with `backward(grads, inputs, outputs)` for its gradients.

    Operators in Python get the arrays themselves. Those in C++ run on the GPU where their class says so, and
    else in host memory, by way of copies. Raises `ConfigurationError` where CuPy is not installed, or finds
    no GPU.
    """
    from d5ray.operators.framework import class_named  # noqa: PLC0415 - taken when used
    from d5ray.ops.custom.arrays import ArrayOperation, instance_of  # noqa: PLC0415

    class_named("cupy").on("cuda")
    import cupy  # noqa: PLC0415 - only where it is asked for

    return ArrayOperation(cupy, instance_of(op))
