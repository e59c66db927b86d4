"""Kernel: one way to compute a layer on a micro-batch, with its time and its workspace, as data"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import final

from d5ray.checks import check_count, check_number
from d5ray.errors import ConfigurationError


@final
@dataclass(frozen=True)
class Kernel:
    """The cost of one way to compute a layer on a micro-batch: seconds, and bytes beside its tensors."""

    seconds: float
    workspace_bytes: int
    name: str = ""

    def __post_init__(self) -> None:
        check_number("seconds", self.seconds, low=0.0, low_included=True)
        check_count("workspace_bytes", self.workspace_bytes, 0)


@final
@dataclass(frozen=True)
class LayerKernels:
    """The kernels of a layer, for each size of a micro-batch that was measured."""

    layer: str
    kernels: Mapping[int, tuple[Kernel, ...]] = field(repr=False)

    def __post_init__(self) -> None:
        for size, found in self.kernels.items():
            check_count(f"the size of a micro-batch of the layer {self.layer!r}", size, 1)
            if not isinstance(found, tuple) or not all(isinstance(each, Kernel) for each in found):
                raise ConfigurationError(
                    f"the kernels of the layer {self.layer!r} for {size} samples are {found!r}: give a tuple "
                    "of Kernel(seconds, workspace_bytes)"
                )

    def of_sizes(self, sizes: Iterable[int]) -> "LayerKernels":
        """The layer without kernels for any other size."""
        wanted = set(sizes)
        return LayerKernels(self.layer, {size: each for size, each in self.kernels.items() if size in wanted})


@final
@dataclass(frozen=True)
class Part:
    """A micro-batch, and the kernel that computes the layer on it."""

    size: int
    kernel: Kernel


@final
@dataclass(frozen=True)
class Division:
    """A mini-batch of a layer as micro-batches, the largest first, computed one after the other.

    Times add up, and each part uses the workspace of the one before it: the largest counts.
    """

    layer: str
    parts: tuple[Part, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of samples in each part."""
        return tuple(part.size for part in self.parts)

    @property
    def seconds(self) -> float:
        """The sum of the times of all micro-batches."""
        return sum(part.kernel.seconds for part in self.parts)

    @property
    def workspace_bytes(self) -> int:
        """The largest workspace of any micro-batch."""
        return max(part.kernel.workspace_bytes for part in self.parts)
