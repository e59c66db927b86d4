"""The schedules of the field: naive model parallelism, GPipe, 1F1B and interleaved 1F1B"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import final

from d5ray.checks import check_count
from d5ray.errors import ConfigurationError
from d5ray.kits.parallel.pipeline.actions import Action, Backward, Forward
from d5ray.kits.parallel.pipeline.schedule import PipelineSchedule
from d5ray.kits.parallel.pipeline.schedule_checks import execute


@final
@dataclass(frozen=True)
class NaiveModelParallelism(PipelineSchedule):
    """One micro-batch after the other, forward and backward: stages in turn, without a pipeline.

    One stage computes at a time: the bubble is (S−1)/S with S stages, whatever the number of micro-batches.
    Keeps one micro-batch.
    """

    def of_stage(self, stage: int, stages: int, micro_batches: int) -> Iterator[Action]:
        for micro in range(micro_batches):
            yield Forward(0, micro)
            yield Backward(0, micro)

    def bubble(self, stages: int, micro_batches: int) -> float:
        return (stages - 1) / stages

    def kept(self, stages: int, micro_batches: int) -> tuple[int, ...]:
        return (1,) * stages


@final
@dataclass(frozen=True)
class GPipe(PipelineSchedule):
    """Fill and drain: all forward passes, then all backward passes (Huang et al., arXiv:1811.06965).

    The bubble is (S−1)/(M+S−1) with S stages and M micro-batches; every stage keeps all M. The paper's
    backward passes are in the opposite order; here every schedule adds gradients in the same order.
    """

    def of_stage(self, stage: int, stages: int, micro_batches: int) -> Iterator[Action]:
        yield from (Forward(0, micro) for micro in range(micro_batches))
        yield from (Backward(0, micro) for micro in range(micro_batches))

    def bubble(self, stages: int, micro_batches: int) -> float:
        return (stages - 1) / (micro_batches + stages - 1)

    def kept(self, stages: int, micro_batches: int) -> tuple[int, ...]:
        return (micro_batches,) * stages


@final
@dataclass(frozen=True)
class OneFOneB(PipelineSchedule):
    """1F1B, PipeDream-flush: backward passes as early as possible (Narayanan et al., arXiv:2006.09503).

    Stage s begins with S−1−s forward passes, then forward and backward passes alternate. The bubble is
    (S−1)/(M+S−1), as `GPipe`'s, but stage s keeps only min(M, S−s) micro-batches (section 2.2).
    """

    def of_stage(self, stage: int, stages: int, micro_batches: int) -> Iterator[Action]:
        forward = [Forward(0, micro) for micro in range(micro_batches)]
        backward = [Backward(0, micro) for micro in range(micro_batches)]
        return _alternating(forward, backward, stages - 1 - stage)

    def bubble(self, stages: int, micro_batches: int) -> float:
        return (stages - 1) / (micro_batches + stages - 1)

    def kept(self, stages: int, micro_batches: int) -> tuple[int, ...]:
        return tuple(min(micro_batches, stages - stage) for stage in range(stages))


@final
@dataclass(frozen=True)
class Interleaved(PipelineSchedule):
    """1F1B with several chunks per stage (Narayanan et al., arXiv:2104.04473, section 2.2).

    S stages hold V = `chunks` pieces each, so a micro-batch passes all of them V times. Stage s begins with
    2(S−1−s) + (V−1)S forward passes. With M a multiple of S the bubble is (S−1)/(V·M+S−1), a V-th of
    `OneFOneB`'s where M is large, for V times the messages. Where M is no multiple, which the
    paper excludes, the last group of micro-batches is smaller, and the bubble larger: as `predicted` says.
    """

    chunks: int = 2

    def __post_init__(self) -> None:
        check_count("chunks", self.chunks)
        if self.chunks < 2:
            raise ConfigurationError("Interleaved needs at least 2 chunks a stage: with one it is OneFOneB()")

    def of_stage(self, stage: int, stages: int, micro_batches: int) -> Iterable[Action]:
        return _interleaved(self.chunks, stages, micro_batches)[stage]

    def bubble(self, stages: int, micro_batches: int) -> float:
        if micro_batches % stages:
            return super().bubble(stages, micro_batches)
        return (stages - 1) / (self.chunks * micro_batches + stages - 1)


@lru_cache(maxsize=64)
def _interleaved(chunks: int, stages: int, micro_batches: int) -> tuple[tuple[Action, ...], ...]:
    """The actions of every stage, with as many forward passes more as an uneven last group needs."""
    forward: list[Action] = []
    backward: list[Action] = []
    for first in range(0, micro_batches, stages):
        group = range(first, min(first + stages, micro_batches))
        forward += [Forward(chunk, micro) for chunk in range(chunks) for micro in group]
        backward += [Backward(chunk, micro) for chunk in reversed(range(chunks)) for micro in group]
    for more in range(len(forward)):
        made = tuple(
            tuple(_alternating(forward, backward, 2 * (stages - 1 - stage) + (chunks - 1) * stages + more))
            for stage in range(stages)
        )
        try:
            execute("", made, chunks, lambda stage, action: None)
        except ConfigurationError:
            continue
        break
    return made


def _alternating(forward: Iterable[Action], backward: Iterable[Action], warmups: int) -> Iterator[Action]:
    """The warm-up's forward passes, then one forward and one backward in turn, then the rest backward."""
    ahead, back = list(forward), iter(list(backward))
    yield from ahead[:warmups]
    for action in ahead[warmups:]:
        yield action
        yield next(back)
    yield from back
