"""NumPy. `custom_op` makes a function of an operator of one's own."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from d5ray.ops.custom.arrays import ArrayOperation


def custom_op(op: Any) -> "ArrayOperation":
    """The operator as a function of NumPy arrays, with `backward(grads, inputs, outputs)` for its gradients.

    op: an object of a class derived from `CustomPythonOp`, or what `compile_custom_cppop` gives.
    """
    import numpy as np  # noqa: PLC0415 - beside the other frameworks

    from d5ray.ops.custom.arrays import ArrayOperation, instance_of  # noqa: PLC0415 - taken when used

    return ArrayOperation(np, instance_of(op))
