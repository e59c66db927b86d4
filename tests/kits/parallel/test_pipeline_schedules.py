"""Claims about schedules of pipelines: executable, with the bubble and the memory of their formulas"""

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from d5ray.errors import ConfigurationError
from d5ray.kits.parallel.pipeline.actions import Action, Actions, Backward, Forward, peak_kept
from d5ray.kits.parallel.pipeline.schedule import PipelineSchedule
from d5ray.kits.parallel.pipeline.schedules import (
    GPipe,
    Interleaved,
    NaiveModelParallelism,
    OneFOneB,
)

FLAT: list[PipelineSchedule] = [NaiveModelParallelism(), GPipe(), OneFOneB()]
EVERY = [*FLAT, Interleaved(2), Interleaved(3)]
STAGES = range(1, 6)
MICRO_BATCHES = range(1, 13)
TIMES = [(1.0, 1.0), (1.0, 2.0), (3.0, 1.0)]


def _finished_under_rendezvous(actions: Actions, chunks: int) -> int:
    """How many actions end where a message waits in its pair's channel until the other side takes it.

    A model of its own: pieces in a chain, one channel for each two stages and direction, first in, first out;
    a stage goes on only when what it needs has come, and a receiver takes what comes in its order.
    """
    stages, last = len(actions), chunks * len(actions) - 1
    made: dict[tuple[int, int], list[tuple[str, int, int]]] = {}  # what stands in a channel, in order
    for stage, own in enumerate(actions):
        for action in own:
            piece = action.chunk * stages + stage
            forward = isinstance(action, Forward)
            other = piece + 1 if forward else piece - 1
            if 0 <= other <= last and other % stages != stage:
                channel = made.setdefault((stage, other % stages), [])
                channel.append(("F" if forward else "B", other, action.micro))
    done: set[tuple[str, int, int]] = set()
    delivered: set[tuple[str, int, int]] = set()
    places = [0] * stages
    heads = dict.fromkeys(made, 0)
    moved = True
    while moved:
        moved = False
        for stage, own in enumerate(actions):
            if places[stage] == len(own):
                continue
            action = own[places[stage]]
            kind, piece = "F" if isinstance(action, Forward) else "B", action.chunk * stages + stage
            before = piece - 1 if kind == "F" else piece + 1
            wanted = (kind, piece, action.micro)
            ready = not 0 <= before <= last
            if not ready and before % stages == stage:
                ready = (kind, before, action.micro) in done
            elif not ready:
                pair = before % stages, stage
                while wanted not in delivered and heads[pair] < len(made[pair]):
                    coming = made[pair][heads[pair]]
                    maker = coming[1] - 1 if coming[0] == "F" else coming[1] + 1
                    if (coming[0], maker, coming[2]) not in done:
                        break
                    delivered.add(coming)
                    heads[pair] += 1
                    moved = True
                ready = wanted in delivered
            if kind == "B":
                ready = ready and ("F", piece, action.micro) in done
            if ready:
                done.add(wanted)
                places[stage] += 1
                moved = True
    return len(done)


@pytest.mark.parametrize("schedule", EVERY, ids=repr)
def test_every_schedule_ends_for_all_stages_and_micro_batches(schedule: PipelineSchedule) -> None:
    for stages in STAGES:
        for micro_batches in MICRO_BATCHES:
            actions = schedule.actions(stages, micro_batches)
            whole = 2 * schedule.chunks * stages * micro_batches
            assert (
                sum(map(len, actions)) == len({(s, a) for s, own in enumerate(actions) for a in own}) == whole
            )
            assert _finished_under_rendezvous(actions, schedule.chunks) == whole


def _formula(schedule: PipelineSchedule, stages: int, micro_batches: int) -> Fraction:
    if isinstance(schedule, NaiveModelParallelism):
        return Fraction(stages - 1, stages)
    return Fraction(stages - 1, schedule.chunks * micro_batches + stages - 1)


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("schedule", EVERY, ids=repr)
def test_executed_with_equal_times_the_bubble_is_the_formulas(
    schedule: PipelineSchedule, times: tuple[float, float]
) -> None:
    for stages in STAGES:
        for micro_batches in MICRO_BATCHES:
            table = schedule.predicted(stages, micro_batches, *times)
            idle = Fraction(1) - Fraction(sum(table.busy_seconds)) / (stages * Fraction(table.seconds))
            if schedule.chunks == 1 or micro_batches % stages == 0:
                assert idle == _formula(schedule, stages, micro_batches)
                assert schedule.bubble(stages, micro_batches) == pytest.approx(float(idle), abs=1e-12)
            else:
                assert idle >= _formula(schedule, stages, micro_batches)


@pytest.mark.parametrize("schedule", EVERY, ids=repr)
def test_kept_micro_batches_are_those_that_are_counted(schedule: PipelineSchedule) -> None:
    for stages in STAGES:
        for micro_batches in MICRO_BATCHES:
            counted = tuple(map(peak_kept, schedule.actions(stages, micro_batches)))
            assert schedule.kept(stages, micro_batches) == counted
            expected = {
                "NaiveModelParallelism()": [1] * stages,
                "GPipe()": [micro_batches] * stages,
                "OneFOneB()": [min(micro_batches, stages - stage) for stage in range(stages)],
            }.get(repr(schedule))
            if expected is not None:
                assert list(counted) == expected
            elif micro_batches % stages == 0:
                warmups = [
                    2 * (stages - 1 - stage) + (schedule.chunks - 1) * stages for stage in range(stages)
                ]
                assert list(counted) == [min(schedule.chunks * micro_batches, w + 1) for w in warmups]


def test_unequal_stages_are_executed_and_not_averaged() -> None:
    """Two stages, two micro-batches, by hand: the slow first stage lets the second one wait."""
    table = GPipe().predicted(2, 2, forward_seconds=[2.0, 1.0], backward_seconds=[2.0, 3.0])
    spans = [[(str(span.action)[4:11], span.begin, span.end) for span in row] for row in table.stages]
    assert spans == [
        [("forward", 0, 2), ("forward", 2, 4), ("backwar", 8, 10), ("backwar", 11, 13)],
        [("forward", 2, 3), ("forward", 4, 5), ("backwar", 5, 8), ("backwar", 8, 11)],
    ]
    assert (table.seconds, *table.busy_seconds) == (13, 8, 8)
    assert table.bubble == pytest.approx(1 - 16 / 26)


def test_transfers_delay_the_reader_and_not_the_maker() -> None:
    table = OneFOneB().predicted(3, 1, 1.0, 2.0, transfer_seconds=[0.5, 0.25])
    assert [[(span.begin, span.end) for span in row] for row in table.stages] == [
        [(0, 1), (8.5, 10.5)],
        [(1.5, 2.5), (6.0, 8.0)],
        [(2.75, 3.75), (3.75, 5.75)],
    ]
    within = Interleaved(2).predicted(1, 1, 1.0, 1.0, transfer_seconds=9.0)
    assert within.seconds == 4  # both pieces are on one stage


@dataclass(frozen=True)
class _Own(PipelineSchedule):
    """What a test says."""

    stages: Any
    chunks: int = 1

    def of_stage(self, stage: int, stages: int, micro_batches: int) -> Iterable[Action]:
        return list(self.stages[stage])


F, B = Forward, Backward


@pytest.mark.parametrize(
    ("stages", "says"),
    [
        ([[F(0, 0), B(0, 0)], [F(0, 0)]], "stage 1 .* lacks the backward pass of micro-batch 0 in chunk 0"),
        ([[F(0, 0), B(0, 0)], [B(0, 0), F(0, 0)]], "stage 1 .* backward pass .* before its forward pass"),
        ([[F(0, 0), F(0, 0), B(0, 0)], []], "stage 0 .* has the forward pass .* twice"),
        ([[F(0, 0), F(1, 0)], []], "micro-batch 0 in chunk 1, and there is no such"),
        ([[F(0, 1), F(0, 0), B(0, 0), B(0, 1)], []], "running statistics follow the order"),
        (
            [[F(0, 0), B(0, 0), F(0, 1), B(0, 1)], [F(0, 0), F(0, 1), B(0, 0), B(0, 1)]],
            "stage 0 waits to begin the backward .* 0 .*; stage 1 waits to begin the forward .* 1",
        ),
    ],
)
def test_a_schedule_that_is_wrong_is_refused_by_stage_and_action(stages: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        _Own(stages).actions(2, len(stages[0]) // 2)


def test_a_schedule_of_ones_own_has_its_bubble_and_memory_counted() -> None:
    one = [F(0, 0), B(0, 0), F(0, 1), B(0, 1)]
    own = _Own([one, one])
    assert own.bubble(2, 2) == NaiveModelParallelism().bubble(2, 2)
    assert own.kept(2, 2) == (1, 1)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: GPipe().actions(2, 0), "micro_batches is 0"),
        (lambda: GPipe().actions(0, 2), "stages is 0"),
        (lambda: Interleaved(0), "chunks is 0"),
        (lambda: Interleaved(1), "OneFOneB"),
        (lambda: GPipe().predicted(2, 2, [1.0, 2.0, 3.0]), "forward_seconds has 3 values, expected 2"),
        (lambda: GPipe().predicted(2, 2, -1.0), "forward_seconds is -1.0"),
        (
            lambda: GPipe().predicted(2, 2, 1.0, 1.0, [1.0, 2.0]),
            "transfer_seconds has 2 values, expected 1",
        ),
    ],
)
def test_wrong_numbers_are_named(call: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        call()


def test_the_text_shows_the_stages_with_their_micro_batches() -> None:
    assert str(GPipe().predicted(2, 2, 1.0, 1.0)).splitlines() == [
        "GPipe(): 2 stages · 6 s · bubble 33.3%",
        "stage 0  0░1░    0▓1▓",
        "stage 1    0░1░0▓1▓",
    ]
    assert "0a░1a░0b░1b░" in str(Interleaved(2).predicted(2, 2, 1.0, 1.0))


@pytest.mark.parametrize("schedule", EVERY, ids=repr)
def test_the_picture_has_every_action_in_its_row_and_none_over_another(
    schedule: PipelineSchedule, tmp_path: Path
) -> None:
    table = schedule.predicted(3, 5, [0.5 + piece for piece in range(3 * schedule.chunks)])
    text = table.draw(tmp_path / "pass.svg")
    assert (tmp_path / "pass.svg").read_text(encoding="utf-8") == text == table._repr_svg_()
    root = ElementTree.fromstring(text)
    drawn = [rect for rect in root.iter("{http://www.w3.org/2000/svg}rect") if len(rect)]
    assert len(drawn) == 2 * 5 * 3 * schedule.chunks
    rows: dict[str, list[tuple[float, float]]] = {}
    for rect in drawn:
        left, width = float(rect.attrib["x"]), float(rect.attrib["width"])
        rows.setdefault(rect.attrib["y"], []).append((left, left + width))
        assert left + width <= float(root.attrib["width"])
    assert len(rows) == 3
    for spans in rows.values():
        assert all(after[0] >= before[1] for before, after in pairwise(spans))
