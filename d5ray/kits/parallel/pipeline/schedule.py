"""Schedule of a pipeline as data: the actions of each stage, with its bubble, memory and picture"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import final

from d5ray.checks import KnownKeywords, check_count, check_rate
from d5ray.errors import ConfigurationError
from d5ray.kits.parallel.pipeline.actions import Action, Actions, Forward, Span, needs, peak_kept
from d5ray.kits.parallel.pipeline.schedule_checks import check_actions, execute
from d5ray.kits.parallel.pipeline.timetable import Timetable

Seconds = float | Sequence[float]


class PipelineSchedule(KnownKeywords, ABC):
    """The order in which every stage computes the forward and backward passes of a batch's micro-batches.

    Stages and micro-batches are numbered from 0. Of stages · chunks pieces of a network, piece p is chunk
    p // stages of stage p % stages. A schedule of your own is a subclass with `of_stage`; its actions are
    checked before anything runs. Bubble and memory are counted, unless there is a formula for them.
    """

    chunks: int = 1  # pieces that every stage has

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({given})"

    @abstractmethod
    def of_stage(self, stage: int, stages: int, micro_batches: int) -> Iterable[Action]:
        """The actions of a stage, in order."""

    def bubble(self, stages: int, micro_batches: int) -> float:
        """The share of a pass (0..1) in which a stage is idle, on average over the stages.

        It is for stages of equal duration, and transfers without duration.
        """
        return self.predicted(stages, micro_batches).bubble

    def kept(self, stages: int, micro_batches: int) -> tuple[int, ...]:
        """The maximal number of forward passes of a chunk whose activations each stage keeps at once."""
        return tuple(map(peak_kept, self.actions(stages, micro_batches)))

    @final
    def actions(self, stages: int, micro_batches: int) -> Actions:
        """The actions of every stage, in order. Raises `ConfigurationError` if they cannot be executed."""
        check_count("stages", stages)
        check_count("micro_batches", micro_batches)
        made = tuple(tuple(self.of_stage(stage, stages, micro_batches)) for stage in range(stages))
        check_actions(repr(self), made, stages, micro_batches, self.chunks)
        return made

    @final
    def predicted(
        self,
        stages: int,
        micro_batches: int,
        forward_seconds: Seconds = 1.0,
        backward_seconds: Seconds = 2.0,
        transfer_seconds: Seconds = 0.0,
    ) -> Timetable:
        """The predicted timeline of a pass with these times.

        forward_seconds, backward_seconds: of a micro-batch in every piece, or by piece (stages · chunks);
        with recomputation the latter includes the forward pass. transfer_seconds: from a piece to the next
        one and back, or by pair of neighbours (stages · chunks − 1), while both may compute; within a stage
        it is 0. Pieces are assumed to follow one another: an edge that skips one is assumed to be in time.
        """
        pieces = stages * self.chunks
        forward = _by_piece("forward_seconds", forward_seconds, pieces)
        backward = _by_piece("backward_seconds", backward_seconds, pieces)
        transfer = _by_piece("transfer_seconds", transfer_seconds, pieces - 1)
        actions = self.actions(stages, micro_batches)
        ends: dict[tuple[int, Action], float] = {}
        free = [0.0] * stages
        spans: list[list[Span]] = [[] for _ in range(stages)]

        def do(stage: int, action: Action) -> None:
            piece = action.chunk * stages + stage
            begin = free[stage]
            for source, needed in needs(stage, action, stages, self.chunks):
                other = needed.chunk * stages + source
                delay = transfer[min(piece, other)] if source != stage else 0.0
                begin = max(begin, ends[source, needed] + delay)
            seconds = (forward if isinstance(action, Forward) else backward)[piece]
            free[stage] = ends[stage, action] = begin + seconds
            spans[stage].append(Span(action, begin, begin + seconds))

        execute(repr(self), actions, self.chunks, do)
        return Timetable(repr(self), tuple(map(tuple, spans)), max(free))


def _by_piece(name: str, seconds: Seconds, count: int) -> list[float]:
    values = [seconds] * count if isinstance(seconds, int | float) else list(seconds)
    if len(values) != count:
        raise ConfigurationError(
            f"{name} has {len(values)} values, expected {count}: give one for all, or one for each"
        )
    for value in values:
        check_rate(name, value, zero=True)
    return values
