"""Claims about the tables and figures of studies: what they say, and that they fit 80 columns."""

import io
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from d5ray.kits.laboratory.metrics import rates, simulations
from d5ray.kits.laboratory.metrics.exchanges import ALLREDUCE_TIME, AllreduceSpeedup, AllreduceTime
from d5ray.kits.laboratory.metrics.performance_profiles import medians_of, ratios_of
from d5ray.kits.laboratory.metrics.side_by_side import RecordingShare, StepTimeRatio
from d5ray.kits.laboratory.tables import contenders, in_reports
from tests.kits.laboratory.comparing import written

Planted = tuple[str, str, int, float]  # metric, scope, rank, value
SIZES = ("4 B", "4 kB", "64 kB", "256 kB", "1 MB", "10 MB", "100 MB")


def tables(planted: Iterable[Planted], rounds: int = 1, phase: str = "run") -> dict[str, pa.Table]:
    """The tables of a run with these rows, in each of the rounds."""
    return written(((*row[:3], rep, row[3]) for row in planted for rep in range(rounds)), phase)


def printed(things: Iterable[Any]) -> list[str]:
    """The lines in a terminal of 80 columns, one blank between words."""
    console = Console(file=io.StringIO(), width=80)
    for each in things:
        console.print(each)
    assert isinstance(console.file, io.StringIO)
    found = console.file.getvalue().splitlines()
    assert max(map(len, found), default=0) <= 80
    return [" ".join(line.split()) for line in found]


UPDATES, TRAINING, TIME, ELAPSED = (
    rates.UPDATE_RATE, simulations.TRAINING_TIME, simulations.TIME_TO_ACCURACY, simulations.ELAPSED_TIME
)  # fmt: skip
SHOWN: dict[str, tuple[list[Planted], list[str]]] = {
    "updates: the sum over agents; a size that was not measured is a dash": (
        [
            (UPDATES, "d5ray[2] 1 MB", 0, 2000.0), (UPDATES, "d5ray[2] 1 MB", 1, 1000.0),
            (UPDATES, "d5ray[2] 10 MB", 0, 12.5), (UPDATES, "ray docs[2] 1 MB", 0, 100.0),
        ],
        ["updates/s of all agents 1 MB 10 MB", "d5ray[2] 3,000 12.5", "ray docs[2] 100 –"],
    ),
    "samples of stragglers: the sum over agents": (
        [
            *((rates.AGENT_STEP_TIME, "ADPSGD, simulated[4]", rank, 0.02) for rank in range(4)),
            *((rates.SAMPLE_RATE, "ADPSGD, simulated[4]", rank, 100.0 * (rank + 1)) for rank in range(4)),
        ],
        ["samples/s of all agents median 95% interval n", "ADPSGD, simulated[4] 1,000 1"],
    ),
    "costs of simulations side by side": (
        [
            (TRAINING, "ASGD[16] simulated", 0, 0.75), (TRAINING, "ASGD[16] gradients alone", 0, 0.5),
            (simulations.WALL_TIME, "ASGD[1024]", 0, 93.0),
            (simulations.PROCESSOR_TIME, "ASGD[1024]", 0, 90.5),
            (simulations.PEAK_MEMORY, "ASGD[1024]", 0, 8.5e8),
        ],
        [
            "a training (s) simulated gradients alone", "ASGD[16] 0.75 0.5",
            "a whole simulation real time (s) processor (s) peak memory", "ASGD[1024] 93 90.5 850 MB",
        ],
    ),
    "times to an accuracy: what was not reached says how long it was tried for": (
        [
            (TIME, "allreduce, fast[1]", 0, 9.5), (TIME, "allreduce, fast[64]", 0, math.inf),
            (TIME, "allreduce, fast, straggler[64]", 0, 2.25),
            (ELAPSED, "allreduce, fast[64]", 0, 10.0), (ELAPSED, "allreduce, fast[64]", 1, 12.5),
        ],
        [
            "virtual time to accuracy (s) 1 agent 64 agents", "allreduce, fast 9.5 > 12.5",
            "allreduce, fast, straggler – 2.25",
        ],
    ),
    "exchanges beside their formulas, in ms; what costs nothing has no ratio": (
        [
            (metric, f"allreduce, slow[{agents}]", 0, value)
            for agents, one, other in ((4, 0.042, 0.04), (1, 0.0, 0.0))
            for metric, value in (("exchange_time", one), ("predicted_exchange_time", other))
        ],
        ["one exchange (ms) predicted found found/predicted", "allreduce, slow[4] 40 42 1.05"],
    ),
    "times in turn, in ms, under names that d5ray does not know": (
        [
            ("update_time", "lenet[1] Adam d5ray", 0, 0.001),
            ("update_time", "lenet[1] Adam fused", 0, 0.002),
            ("update_time", "lenet[1] SGD d5ray", 0, 0.003), ("update_time", "lenet[1] SGD torch", 0, 0.004),
        ],
        ["update_time (ms) d5ray fused torch", "lenet Adam 1 2 –", "lenet SGD 3 – 4"],
    ),
    "times that no sides took in turn, or one side that has no name": (
        [
            ("some_time", scope, 0, 1.0)
            for scope in ("m[2] with mirror", "m[2] without", "r[1] 1 MB", "r[1] 10 MB", "a[1]")
        ],
        [],
    ),
    "long names that still fit": (
        [(TIME, f"DPSGD exponential, slow, straggler[{n}]", 0, 1.0) for n in (2, 4, 16, 64)],
        [
            "virtual time to accuracy (s) 2 agents 4 agents 16 agents 64 agents",
            "DPSGD exponential, slow, straggler 1 1 1 1",
        ],
    ),
    "a training of agents, which write samples a second too": ([(rates.SAMPLE_RATE, "agent", 0, 100.0)], []),
}  # fmt: skip


@pytest.mark.every_case
@pytest.mark.parametrize("case", SHOWN)
def test_a_study_is_shown_in_tables(case: str) -> None:
    rows, lines = SHOWN[case]
    assert printed(contenders.absolute(tables(rows))) == lines


def test_speedups_are_lines_of_sizes_under_who_is_compared() -> None:
    names = ("d5ray shared_memory[2]", "torch gloo[2]")
    run = tables(
        (
            (ALLREDUCE_TIME, f"{name} {size}", 0, 1e-6 * 10**at * (1 + slower))
            for slower, name in enumerate(names)
            for at, size in enumerate(SIZES)
        ),
        rounds=6,
    )
    criteria = [AllreduceSpeedup(*names, size) >= 1 for size in SIZES]
    lines = printed(contenders.sections(criterion.judge(run) for criterion in criteria))
    assert lines[0] == "allreduce_speedup: d5ray shared_memory[2] over torch gloo[2]"
    assert lines[1] == "size goal measured 95% interval n verdict"
    assert lines[2:] == [f"{size} ≥ 1 2 [2, 2] 6 PASS" for size in SIZES]


def test_ratios_of_steps_are_lines_of_who_is_compared() -> None:
    rows = [("step_time", "d5ray[2]", 0, 0.002), ("step_time", "ddp[2]", 0, 0.004)]
    run = tables(rows, rounds=6, phase="train")
    criteria: list[Any] = [StepTimeRatio("d5ray[2]", "ddp[2]") <= 0.9, RecordingShare("d5ray[2]") <= 0.01]
    lines = printed(contenders.sections(criterion.judge(run) for criterion in criteria))
    assert (lines[0], lines[2]) == ("step_time_ratio", "d5ray[2] over ddp[2] ≤ 0.9 0.5 [0.5, 0.5] 6 PASS")
    assert (lines[3], lines[5]) == ("recording_share", "d5ray[2] ≤ 0.01 – INCONCLUSIVE")


def test_times_are_shown_in_a_unit_that_fits_the_goal() -> None:
    """An allreduce in µs, a step in ms with its rate and accuracy; of a run without rows there is none."""
    run = tables([(ALLREDUCE_TIME, "d5ray[2] 4 kB", 0, 12.3e-6)], rounds=6)
    lines = printed(contenders.sections([(AllreduceTime("d5ray[2]", "4 kB") <= 50e-6).judge(run)]))
    assert lines[0] == "allreduce_time: d5ray[2] (µs)"
    assert lines[2] == "4 kB ≤ 50 12.3 [12.3, 12.3] 6 PASS"
    steps = [("step_time", "d5ray[2]", 0, 0.002), (rates.SAMPLE_RATE, "d5ray[2]", 0, 32_000.0)]
    trained = tables(steps, rounds=6, phase="train")["samples"]
    tested = tables([("test_accuracy", "d5ray[2]", 0, 0.975)], rounds=6, phase="test")["samples"]
    assert printed(contenders.absolute({"samples": pa.concat_tables([trained, tested])})) == [
        "contender step (ms) 95% interval n samples/s test accuracy", "d5ray[2] 2 [2, 2] 6 32,000 0.975"
    ]  # fmt: skip
    assert contenders.absolute({"samples": trained.slice(0, 0)}) == []


# -- performance profiles ----------------------------------------------------------------------------------

STEPS = {"Muon": (100.0, 150.0), "AdamW": (250.0, 100.0), "SGD & <co>": (math.inf, math.inf)}  # by optimizer


def profiles() -> dict[str, pa.Table]:
    """On two workloads; a step takes 10 ms, one of Muon 40 ms; tried were 600 steps in 6 s."""
    return tables(
        (metric, f"{name}, {workload}[1]", 0, value)
        for name, both in STEPS.items()
        for workload, steps in zip(("lenet", "text"), both, strict=True)
        for metric, value in (
            ("steps_to_target", steps), ("time_to_target", steps * (0.04 if name == "Muon" else 0.01)),
            ("evaluated_step", 600.0), ("trained_time", 6.0),
        )
    )  # fmt: skip


def test_the_tables_say_what_was_needed_and_who_was_best() -> None:
    """By hand: ratios 1, 1.5 and 2.5, 1; misses say until when it was tried."""
    assert printed(contenders.absolute(profiles())) == [
        "steps to the target lenet text score",
        "Muon 100 150 0.917",
        "AdamW 250 100 0.750",
        "SGD & <co> > 600 > 600 0.000",
        "seconds to the target lenet text score",
        "AdamW 2.5 1 1.000",
        "Muon 4 6 0.400",
        "SGD & <co> > 6 > 6 0.000",
        "share within … × the fewest steps 1 1.25 1.5 2 3 4",
        "Muon 0.50 0.50 1.00 1.00 1.00 1.00",
        "AdamW 0.50 0.50 0.50 0.50 1.00 1.00",
        "SGD & <co> 0.00 0.00 0.00 0.00 0.00 0.00",
    ]


def test_the_figure_has_a_line_of_every_optimizer_through_its_shares() -> None:
    """By steps: Muon is within a ratio of 1 on half of all workloads, from 1.5 on on all; best first."""
    ratios = ratios_of(medians_of(profiles(), "steps_to_target"))
    (axes,) = in_reports._drawn(ratios, "steps").axes
    muon, adamw, sgd = axes.lines
    assert [line.get_label() for line in axes.lines] == ["Muon  0.92", "AdamW  0.75", "SGD & <co>  0.00"]
    assert np.asarray(muon.get_xydata()).tolist() == [[1.0, 0.5], [1.5, 1.0], [2.5, 1.0], [4.0, 1.0]]
    assert adamw.get_ydata() == pytest.approx([0.5, 0.5, 1.0, 1.0], abs=0.02)
    assert sgd.get_ydata() == pytest.approx(np.zeros(4), abs=0.02)
