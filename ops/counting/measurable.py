"""Measurable: work of a fixed size that can be timed, and what it computes and moves"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from d5ray.operators.framework import Call, Framework, Tensor
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

FLOP_RATE: Final = "flop_rate"  # metrics beside the time of a call
BYTE_RATE: Final = "byte_rate"
PEAK_FLOP_RATE: Final = "peak_flop_rate"  # of the machine
PEAK_BYTE_RATE: Final = "peak_byte_rate"
UNITS: Final = {FLOP_RATE: "1/s", BYTE_RATE: "B/s", PEAK_FLOP_RATE: "1/s", PEAK_BYTE_RATE: "B/s"}

# From a descriptor, and the lowest and highest value, to random numbers as the framework's array.
MakeArray = Callable[..., Tensor]


class Measurable(Protocol):
    """Work of a fixed size, as a plan and tables see it.

    name         unique in a run
    group        what it is listed and compared with
    metric       of its times, such as "operator_time"; level: 0 of an operator to 3 of agents
    batch        samples that one call works on
    flops        operations of a call (a multiplication and an addition are two); 0 where that is not known
    moved_bytes  bytes that must be read or written at least
    """

    @property
    def name(self) -> str: ...

    @property
    def group(self) -> str: ...

    @property
    def metric(self) -> str: ...

    @property
    def level(self) -> int: ...

    @property
    def batch(self) -> int: ...

    @property
    def flops(self) -> int: ...

    @property
    def moved_bytes(self) -> int: ...

    @property
    def input_bytes(self) -> int:
        """The bytes of what must be made before it can be measured."""

    @property
    def needed_bytes(self) -> int:
        """The memory that a call takes."""

    def describe(self) -> dict[str, Any]:
        """The description of it for readers of a run's tables, as JSON data."""


class Computation(Measurable, Protocol):
    """Work that a framework does."""

    def call(self, framework: Framework, array: MakeArray) -> Call:
        """A call that does it once, on inputs that `array` makes of descriptors."""


def bound_seconds(work: Measurable, flops_per_second: float, bytes_per_second: float) -> float:
    """The least time that the roofline allows (Williams et al., doi 10.1145/1498765.1498785)."""
    return max(work.flops / flops_per_second, work.moved_bytes / bytes_per_second)


def described(
    work: Measurable,
    kind: str,
    inputs: tuple[TensorDescriptor | None, ...],
    of: str,
    output: Sequence[Any] | None,
    sample: Sequence[int],
) -> dict[str, Any]:
    """The description of all work. kind: its type in words; of: the pass; output, sample: their shapes."""
    return {
        "group": work.group,
        "type": kind,
        "inputs": [None if each is None else list(each.sizes) for each in inputs],
        "batch": work.batch,
        "flops": work.flops,
        "bytes": work.moved_bytes,
        "pass": of,
        "output": None if output is None else list(output),
        "sample": list(sample),
    }
