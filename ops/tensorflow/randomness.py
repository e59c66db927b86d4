"""Random numbers of the operators that draw them: generators of TensorFlow's"""

from typing import Any, final

from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.tensorflow.library import tf


@final
class SeededNumbers:
    """Stands for a generator; what is drawn follows from a tensor, a seed (2,) int64, given before it."""

    def __init__(self) -> None:
        self._seed: Any = None

    def begin(self, seed: Any) -> None:
        """Draw from this seed on."""
        self._seed = seed

    def uniform(self, shape: Any, minval: float = 0.0, maxval: float = 1.0, dtype: Any = tf.float32) -> Any:
        """Numbers of [minval, maxval) in this shape, the same ones for the same seed."""
        return tf.random.stateless_uniform(shape, self._seed, minval, maxval, dtype)

    def normal(self, shape: Any, mean: float = 0.0, stddev: float = 1.0, dtype: Any = tf.float32) -> Any:
        """Normal numbers in this shape, the same ones for the same seed."""
        return tf.random.stateless_normal(shape, self._seed, mean, stddev, dtype)


def generator(context: NodeContext) -> Any:
    """The node's own generator (a `tf.random.Generator`), which goes on from call to call, in graphs too.

    It begins with the node's attribute `seed`; without one, with a number that `context.random` draws, unless
    that is a generator of TensorFlow's itself; and where there is neither, with what the machine has by
    chance. The numbers are not those that NumPy or PyTorch draw from the same seed. `SeededNumbers` are
    taken as they are, whatever the node's seed.
    """
    if isinstance(context.random, SeededNumbers):
        return context.random
    seed = context.attribute("seed")
    with tf.init_scope():
        if seed is not None:
            return tf.random.Generator.from_seed(_seed(seed))
        if context.random is None:
            return tf.random.Generator.from_non_deterministic_state()
        if isinstance(context.random, tf.random.Generator):
            return context.random
        return tf.random.Generator.from_seed(int(float(context.random.random(())) * 2**53))


def _seed(seed: float) -> int:
    """Whole numbers are themselves; others, which ONNX allows, give their bits."""
    return (
        int(seed) if float(seed).is_integer() else int.from_bytes(float(seed).hex().encode()[-8:], "little")
    )
