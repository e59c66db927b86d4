"""Problem: an operator at fixed sizes, to be measured, with what it computes and moves"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final, final

from d5ray.operators.framework import Call, Framework
from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.counting.measurable import MakeArray, bound_seconds, described

FORWARD, TRAINING = "forward", "training"  # passes: the outputs; and then the gradients of all inputs
BACKWARD_FLOPS: Final = 2  # of a product's forward ones: a product for each of its two factors
TRAINING_TENSORS: Final = 3  # the size of an input: its value is read twice, its gradient is written


@final
@dataclass(frozen=True)
class Problem:
    """A node with the descriptors of its inputs, None where one is left out, and of its first output.

    group     what it is listed under: "gemm", "conv", "rnn"
    of        which of the passes is measured: `FORWARD` or `TRAINING`
    flops     of the forward pass; a multiplication and an addition are two
    batch     samples that one call works on
    origin    the sizes as the suite lists them
    """

    name: str
    group: str
    node: Node
    inputs: tuple[TensorDescriptor | None, ...]
    output: TensorDescriptor
    forward_flops: int
    batch: int
    origin: tuple[int | str, ...] = ()
    of: str = FORWARD

    metric: ClassVar[str] = "operator_time"
    level: ClassVar[int] = 0

    @property
    def context(self) -> NodeContext:
        """The context of the node: alone, all shapes known."""
        return NodeContext(self.node, inputs=self.inputs, outputs=(self.output,) + (None,) * self.spare)

    @property
    def sample(self) -> tuple[int, ...]:
        """The shape of a sample: of a product of matrices its three sizes, else of the first input's."""
        first = self.inputs[0]
        assert first is not None
        if self.group == "gemm":
            return tuple(size for size in self.origin if isinstance(size, int))
        return (first.sizes[0], *first.sizes[2:]) if self.group == "rnn" else first.sizes[1:]

    @property
    def spare(self) -> int:
        """The number of outputs after the first."""
        return len(self.node.outputs) - 1

    @property
    def flops(self) -> int:
        """The floating-point operations of the measured pass, by the operator's definition."""
        return self.forward_flops * (1 if self.of == FORWARD else 1 + BACKWARD_FLOPS)

    @property
    def input_bytes(self) -> int:
        """The bytes of all inputs."""
        return sum(each.bytes for each in self.inputs if each is not None)

    @property
    def moved_bytes(self) -> int:
        """The bytes that must come from memory or go there at least, every tensor once a pass.

        Forward: the inputs and the output. Backward: the output's gradient, the inputs and their gradients.
        """
        if self.of == FORWARD:
            return self.input_bytes + self.output.bytes
        return TRAINING_TENSORS * self.input_bytes + 2 * self.output.bytes

    @property
    def intensity(self) -> float:
        """The arithmetic intensity in floating-point operations per byte."""
        return self.flops / self.moved_bytes

    @property
    def needed_bytes(self) -> int:
        """The memory that a call takes: its tensors, and a copy of the largest, packed or as columns."""
        kernel = self.node.attributes.get("kernel_shape", ())
        largest = max(self.output.bytes, *(each.bytes for each in self.inputs if each is not None))
        columns = (
            self.output.bytes // max(1, self.output.sizes[1]) * self.column_length if kernel else largest
        )
        tensors = self.input_bytes + self.output.bytes
        return (tensors if self.of == FORWARD else 2 * tensors) + columns

    @property
    def column_length(self) -> int:
        """The length of a column of a convolution written as a product: channels × the filter's size."""
        weights = self.inputs[1]
        assert weights is not None
        return math.prod(weights.sizes[1:])

    def bound_seconds(self, flops_per_second: float, bytes_per_second: float) -> float:
        """The least time that the roofline allows (Williams et al., doi 10.1145/1498765.1498785)."""
        return bound_seconds(self, flops_per_second, bytes_per_second)

    def call(self, framework: Framework, array: MakeArray) -> Call:
        """A call of the catalogue's operator on random inputs."""
        function = framework.built(self.context)
        inputs = [None if each is None else array(each) for each in self.inputs]
        if self.of == FORWARD:
            return framework.inference(function, inputs)
        return framework.training(function, inputs, array(self.output))

    def describe(self) -> dict[str, Any]:
        """The description of it for readers of a run's tables, as JSON data."""
        return described(self, self.node.type, self.inputs, self.of, self.output.sizes, self.sample)


def gemm(m: int, n: int, k: int, transposed: str, dtype: Any = "float32") -> Problem:
    """C (m, n) = op(A) (m, k) · op(B) (k, n)."""
    a = TensorDescriptor(dtype, (k, m) if transposed[0] == "T" else (m, k))
    b = TensorDescriptor(dtype, (n, k) if transposed[1] == "T" else (k, n))
    flags = {"transA": int(transposed[0] == "T"), "transB": int(transposed[1] == "T")}
    return Problem(
        name=f"gemm {m}×{n}×{k} {transposed}",
        group="gemm",
        node=Node("Gemm", ("a", "b"), ("c",), flags),
        inputs=(a, b),
        output=TensorDescriptor(dtype, (m, n)),
        forward_flops=2 * m * n * k,
        batch=1,
        origin=(m, n, k, transposed),
    )
