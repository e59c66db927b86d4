"""The gradient of an operand that was broadcast: the sum over all the places where it was used"""

from d5ray.operators.array_operator import Array


def summed_to_shape(gradient: Array, shape: tuple[int, ...]) -> Array:
    """Σ of the gradient (the broadcast shape) over the axes in which an operand of `shape` was repeated."""
    if gradient.shape == shape:
        return gradient
    new = gradient.ndim - len(shape)  # axes that the operand has not
    repeated = [
        axis
        for axis, size in enumerate(gradient.shape)
        if axis < new or (shape[axis - new] == 1 and size != 1)
    ]
    return gradient.sum(axis=tuple(repeated)).reshape(shape)
