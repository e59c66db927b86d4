"""Claims about the tables of comparisons: what they say, and that they fit a terminal of 80 columns."""

import io
from collections.abc import Sequence

import pyarrow as pa
import pytest
from rich.console import Console

from d5ray.dashboards.terminal import contenders, run_tables
from d5ray.dashboards.terminal.contenders import Label
from d5ray.metrics.definitions.exchanges import ALLREDUCE_TIME, AllreduceSpeedup, AllreduceTime
from d5ray.metrics.definitions.side_by_side import RecordingShare, StepTimeRatio
from d5ray.metrics.judge.criteria import Criterion
from d5ray.metrics.record.recorder import Recorder

SIZES = ("4 B", "4 kB", "64 kB", "256 kB", "1 MB", "10 MB", "100 MB")
NAMES = ("d5ray shared_memory[2]", "torch gloo[2]", "openmpi[2]")
TRAINERS = ("d5ray[2]", "ddp[2]", "ray.train[2]")


def squeezed(line: str) -> str:
    """With one blank between words."""
    return " ".join(line.split())


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    """Six pairs of three contenders, whose allreduce of the i-th size takes 1.2345 · 10^(i−6) s."""
    batches: list[pa.RecordBatch] = []
    for number, name in enumerate(NAMES):
        for pair in range(6):
            recorder = Recorder(run_id="r", agent=f"{name}/0", rank=0, node="n", send=batches.append)
            recorder.declare(ALLREDUCE_TIME, "s")
            for power, size in enumerate(SIZES):
                seconds = 1.2345 * 10.0 ** (power - 6) * (1 + number)
                recorder.record(
                    ALLREDUCE_TIME, seconds, step=0, phase="run", scope=f"{name} {size}", rep=pair
                )
            trainer, seconds = TRAINERS[number], 0.002 * (1 + number)
            recorder.record("step_time", seconds, step=0, phase="train", scope=trainer, rep=pair)
            recorder.record(
                "samples_per_second", 64 / seconds, step=0, phase="train", scope=trainer, rep=pair
            )
            recorder.record("test_accuracy", 0.975, step=0, phase="test", scope=trainer, rep=pair)
            recorder.flush()
    return {"samples": pa.Table.from_batches(batches)}


def shown(things: Sequence[object]) -> list[str]:
    """The lines in a terminal of 80 columns, without the blanks at their ends."""
    console = Console(file=io.StringIO(), width=80)
    for thing in things:
        console.print(thing)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_speedups_are_lines_of_sizes_under_who_is_compared(tables: dict[str, pa.Table]) -> None:
    criteria = [AllreduceSpeedup(NAMES[0], NAMES[1], size) >= 1 for size in SIZES]
    lines = shown(contenders.sections(criterion.judge(tables) for criterion in criteria))
    assert lines[0] == "allreduce_speedup: d5ray shared_memory[2] over torch gloo[2]"
    assert lines[1].split() == ["size", "goal", "measured", "95%", "interval", "n", "verdict"]
    assert lines[2].split() == ["4", "B", "≥", "1", "2", "[2,", "2]", "6", "PASS"]
    assert len(lines) == 2 + len(SIZES)


def test_ratios_of_steps_are_lines_of_who_is_compared(tables: dict[str, pa.Table]) -> None:
    criteria: list[Criterion] = [StepTimeRatio("d5ray[2]", base) <= 0.9 for base in TRAINERS[1:]]
    criteria += [RecordingShare("d5ray[2]") <= 0.01]
    lines = shown(contenders.sections(criterion.judge(tables) for criterion in criteria))
    assert lines[0] == "step_time_ratio"
    assert squeezed(lines[2]) == "d5ray[2] over ddp[2] ≤ 0.9 0.5 [0.5, 0.5] 6 PASS"
    assert squeezed(lines[3]) == "d5ray[2] over ray.train[2] ≤ 0.9 0.333 [0.333, 0.333] 6 PASS"
    assert lines[4] == "recording_share"
    assert squeezed(lines[6]) == "d5ray[2] ≤ 0.01 – INCONCLUSIVE"


def test_steps_come_with_their_rate_and_what_was_learned(tables: dict[str, pa.Table]) -> None:
    lines = shown(contenders.absolute(tables))
    assert squeezed(lines[1]) == "d5ray[2] 2 [2, 2] 6 32,000 0.975"


@pytest.mark.parametrize(
    ("text", "name", "who", "at"),
    [
        ("step_time", "step_time", "", {}),
        ("step_time_ratio(ours=d5ray[2], base=ddp[2])", "step_time_ratio", "d5ray[2] over ddp[2]", {}),
        ("recording_share(contender=d5ray socket[2])", "recording_share", "d5ray socket[2]", {}),
        ("a(ours=x, y[2], base=b[2], size=1 MB)", "a", "x, y[2] over b[2]", {"size": "1 MB"}),
    ],
)
def test_a_label_is_taken_apart(text: str, name: str, who: str, at: dict[str, str]) -> None:
    label = Label.of(text)
    assert (label.name, label.who, label.at) == (name, who, at)


def test_a_reason_that_many_criteria_have_is_said_once(tables: dict[str, pa.Table]) -> None:
    missing = [(AllreduceSpeedup("a[2]", "b[2]", size) >= 1).judge(tables) for size in SIZES]
    one = (AllreduceTime("c[2]", "1 MB") <= 1).judge(tables)
    assert run_tables.notes([*missing, one]) == [
        "7 criteria: unavailable: b[2] was not measured",
        "allreduce_time(contender=c[2], size=1 MB): unavailable: c[2] was not measured",
    ]
