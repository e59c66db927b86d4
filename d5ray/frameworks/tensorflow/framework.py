"""TensorFlow, for checking and measuring operators; importing this imports tensorflow"""

import os
from collections.abc import Sequence
from typing import Any, ClassVar, Self, final

import numpy as np
import tensorflow as tf

from d5ray.errors import ConfigurationError
from d5ray.operators.custom.custom_operator import CustomOp
from d5ray.operators.framework import Call, Framework, Numbers, Pullback, Tensor, as_tuple, lacking
from d5ray.operators.nodes.node_context import Kernel, NodeContext
from d5ray.ops.custom.tensorflow_operation import TensorflowOperation
from d5ray.ops.tensorflow import FACTORIES


@final
class TensorFlowFramework(Framework):
    """Tensors on one device, differentiated by a tape; measured as a `tf.function`."""

    name: ClassVar[str] = "tensorflow"

    def __init__(self, device: str) -> None:
        self.device = device

    @classmethod
    def of(cls, arrays: Sequence[Tensor]) -> Self:
        return cls(arrays[0].device or "/CPU:0")

    @classmethod
    def on(cls, device: str) -> Self:
        if device == "cuda" and not tf.config.list_physical_devices("GPU"):
            raise ConfigurationError(
                "TensorFlow finds no GPU: take --device cpu, or install tensorflow for it"
            )
        return cls("/GPU:0" if device == "cuda" else "/CPU:0")

    @property
    def version(self) -> str:
        return str(tf.__version__)

    @property
    def threads(self) -> int:
        if "GPU" in self.device:
            return 1
        if threads := int(tf.config.threading.get_intra_op_parallelism_threads()):
            return threads
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    def use_threads(self, count: int) -> None:
        tf.config.threading.set_intra_op_parallelism_threads(count)

    def copying(self, source: Tensor) -> Call:
        return lambda: tf.raw_ops.DeepCopy(x=source)

    def array(self, values: Numbers) -> Tensor:
        with tf.device(self.device):
            return tf.constant(values)

    def numbers(self, array: Tensor) -> Numbers:
        return np.array(tf.convert_to_tensor(array).numpy())  # of slices too

    def synchronize(self) -> None:
        if "GPU" in self.device:
            tf.test.experimental.sync_devices()

    def linearized(
        self, operator: Any, inputs: Sequence[Numbers | None]
    ) -> tuple[tuple[Numbers, ...], Pullback]:
        leaves = [None if each is None else self.array(each) for each in inputs]
        wanted = [at for at, leaf in enumerate(leaves) if leaf is not None and leaf.dtype.is_floating]
        sources = [leaves[at] for at in wanted]
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(sources)
            outputs = as_tuple(operator(*leaves))

        def pullback(gradients: Sequence[Numbers | None]) -> list[Numbers | None]:
            live = [
                (output, tf.cast(self.array(each), output.dtype))
                for output, each in zip(outputs, gradients, strict=True)
                if each is not None and output.dtype.is_floating
            ]
            found: list[Numbers | None] = [None] * len(leaves)
            if live and wanted:
                roots, cotangents = zip(*live, strict=True)
                slopes = tape.gradient(list(roots), sources, output_gradients=list(cotangents))
                for at, slope in zip(wanted, slopes, strict=True):
                    found[at] = None if slope is None else self.numbers(slope)
            return found

        return tuple(map(self.numbers, outputs)), pullback

    def custom(self, operator: CustomOp) -> TensorflowOperation:
        return TensorflowOperation(operator)

    def built(self, context: NodeContext) -> Kernel:
        if context.node.type not in FACTORIES:
            raise lacking(self.name, context)
        return FACTORIES[context.node.type](context)

    def inference(self, function: Kernel, inputs: Sequence[Tensor]) -> Call:
        # A concrete function with an argument that is left out binds it anew at every call, in 0.4 ms.
        compiled = tf.function(lambda *given: function(*given)).get_concrete_function(*inputs)
        return lambda: compiled(*inputs)

    def training(self, function: Kernel, inputs: Sequence[Tensor], gradient: Tensor) -> Call:
        owned = list(getattr(function, "trainable_variables", ()))

        def step(*given: Tensor) -> Any:
            wanted = [each for each in given if each.dtype.is_floating]
            with tf.GradientTape() as tape:
                tape.watch(wanted)
                output = as_tuple(function(*given))[0]
            return tape.gradient(output, [*wanted, *owned], output_gradients=gradient)

        compiled = tf.function(step).get_concrete_function(*inputs)
        return lambda: compiled(*inputs)
