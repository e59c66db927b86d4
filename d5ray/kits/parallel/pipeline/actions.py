"""Actions of a pipeline's stages, as data: forward and backward passes of a chunk for a micro-batch"""

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class Forward:
    """A micro-batch through a chunk of this stage."""

    chunk: int
    micro: int

    def __str__(self) -> str:
        return f"the forward pass of micro-batch {self.micro} in chunk {self.chunk}"


@final
@dataclass(frozen=True)
class Backward:
    """The backward pass of a chunk for a micro-batch."""

    chunk: int
    micro: int

    def __str__(self) -> str:
        return f"the backward pass of micro-batch {self.micro} in chunk {self.chunk}"


Action = Forward | Backward
Actions = tuple[tuple[Action, ...], ...]  # of every stage, in order
Step = tuple[int, Action]  # a stage, and what it does


def needs(stage: int, action: Action, stages: int, chunks: int) -> list[Step]:
    """The actions that must be over before this one, in a network whose pieces follow one another.

    Piece p is chunk p // stages of the stage p % stages.
    """
    piece = action.chunk * stages + stage
    if isinstance(action, Forward):
        if piece == 0:
            return []
        before = piece - 1
        return [(before % stages, Forward(before // stages, action.micro))]
    own = (stage, Forward(action.chunk, action.micro))
    if piece == stages * chunks - 1:
        return [own]
    after = piece + 1
    return [own, (after % stages, Backward(after // stages, action.micro))]


def peak_kept(actions: tuple[Action, ...]) -> int:
    """The greatest number of forward passes for which a stage keeps what their backward passes need."""
    kept = peak = 0
    for action in actions:
        kept += 1 if isinstance(action, Forward) else -1
        peak = max(peak, kept)
    return peak


@final
@dataclass(frozen=True)
class Span:
    """One action, from its begin to its end in seconds since the pass began."""

    action: Action
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """The time that the action took."""
        return self.end - self.begin
