"""CuPy and NCCL; importing this imports neither"""

from typing import TYPE_CHECKING, Any

from d5ray.errors import ConfigurationError

if TYPE_CHECKING:
    from d5ray.ops.custom.arrays import ArrayOperation


def custom_op(op: Any) -> "ArrayOperation":
    """The operator as a function of CuPy arrays, with `backward(grads, inputs, outputs)` for its gradients.

    Operators in Python get the arrays themselves. Those in C++ run on the GPU where their class says so, and
    else in host memory, by way of copies. Raises `ConfigurationError` where CuPy is not installed.
    """
    from d5ray.ops.custom.arrays import ArrayOperation, instance_of  # noqa: PLC0415 - taken when used

    try:
        import cupy  # noqa: PLC0415 - only where it is asked for
    except ImportError as error:
        raise ConfigurationError(f"CuPy is not there ({error}): pip install 'd5ray[cuda]'") from error
    return ArrayOperation(cupy, instance_of(op))
