"""Divisions of one operator over the parts of a split: by columns, rows, channels, heads, or samples"""

from dataclasses import dataclass
from typing import final

from d5ray.checks import check_count


@final
@dataclass(frozen=True)
class ByColumns:
    """A division by outputs: the columns of a MatMul's or Gemm's weights, those of a Gather's table.

    Every part reads the whole input and makes its columns. blocks: the number of groups of columns side by
    side, such as queries, keys and values, of each of which a part takes its share; by default as many as a
    Split behind the operator makes of them, else one.
    """

    blocks: int | None = None

    def __post_init__(self) -> None:
        if self.blocks is not None:
            check_count("blocks", self.blocks, 1)


@final
@dataclass(frozen=True)
class ByRows:
    """A division by the sum's terms: the rows of a MatMul's or Gemm's weights, or those of a Gather's table.

    Every part reads its columns of the input, or all indices, and computes a partial sum.
    """


@final
@dataclass(frozen=True)
class ByOutputChannels:
    """A convolution's filters: every part reads the whole image, and makes its channels.

    In a grouped convolution every part has its groups, and reads only their channels.
    """


@final
@dataclass(frozen=True)
class ByInputChannels:
    """A convolution divided by its input channels: each part reads its own and computes a partial sum."""


@final
@dataclass(frozen=True)
class ByHeads:
    """The heads of an Attention: every part reads the queries, keys and values of its heads."""


@final
@dataclass(frozen=True)
class BySamples:
    """The samples of the batch: every part computes its share of them, with the whole parameters.

    This is data parallelism within the split, such as for the convolutions before split fully connected
    layers (Krizhevsky, arXiv:1404.5997). If the number of samples is not divisible by the parts, the first
    ones have one more.
    """


Division = ByColumns | ByRows | ByOutputChannels | ByInputChannels | ByHeads | BySamples
DIVISIONS: tuple[type, ...] = (ByColumns, ByRows, ByOutputChannels, ByInputChannels, ByHeads, BySamples)
