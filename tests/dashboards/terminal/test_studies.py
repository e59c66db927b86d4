"""Claims about the tables of studies: what they say, and that they fit a terminal of 80 columns."""

import io
import math

import pyarrow as pa
from rich.console import Console

from d5ray.dashboards.terminal import contenders
from d5ray.metrics.definitions import rates, simulations
from d5ray.metrics.record.recorder import Recorder

UNITS = {rates.UPDATE_RATE: "1/s", rates.SAMPLE_RATE: "1/s", simulations.PEAK_MEMORY: "B"}


def lines(*planted: tuple[str, str, int, float]) -> list[str]:
    """The lines in a terminal of 80 columns, one blank between words; of (metric, scope, rank, value)."""
    batches: list[pa.RecordBatch] = []
    for metric, scope, rank, value in planted:
        recorder = Recorder(run_id="r", agent=f"{scope}/{rank}", rank=rank, node="n", send=batches.append)
        recorder.declare(metric, UNITS.get(metric, "s"))
        recorder.record(metric, value, step=0, phase="run", scope=scope)
        recorder.flush()
    console = Console(file=io.StringIO(), width=80)
    for table in contenders.absolute({"samples": pa.Table.from_batches(batches)}):
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    found = console.file.getvalue().splitlines()
    assert max(map(len, found), default=0) <= 80
    return [" ".join(line.split()) for line in found]


def test_updates_are_rows_of_contenders_and_columns_of_sizes() -> None:
    """The sum over the agents; a size that was not measured is a dash."""
    rate = rates.UPDATE_RATE
    assert lines(
        (rate, "d5ray[2] 1 MB", 0, 2000.0), (rate, "d5ray[2] 1 MB", 1, 1000.0),
        (rate, "d5ray[2] 10 MB", 0, 12.5), (rate, "ray docs[2] 1 MB", 0, 100.0),
    ) == ["updates/s of all agents 1 MB 10 MB", "d5ray[2] 3,000 12.5", "ray docs[2] 100 –"]  # fmt: skip


def test_samples_of_stragglers_are_summed_over_their_agents() -> None:
    found = lines(
        *((rates.AGENT_STEP_TIME, "ADPSGD, simulated[4]", rank, 0.02) for rank in range(4)),
        *((rates.SAMPLE_RATE, "ADPSGD, simulated[4]", rank, 100.0 * (rank + 1)) for rank in range(4)),
    )
    assert found == ["samples/s of all agents median 95% interval n", "ADPSGD, simulated[4] 1,000 1"]


def test_costs_of_simulations_are_shown_side_by_side() -> None:
    training = simulations.TRAINING_TIME
    assert lines(
        (training, "ASGD[16] simulated", 0, 0.75), (training, "ASGD[16] gradients alone", 0, 0.5),
        (simulations.WALL_TIME, "ASGD[1024]", 0, 93.0), (simulations.PROCESSOR_TIME, "ASGD[1024]", 0, 90.5),
        (simulations.PEAK_MEMORY, "ASGD[1024]", 0, 8.5e8),
    ) == [
        "a training (s) simulated gradients alone", "ASGD[16] 0.75 0.5",
        "a whole simulation real time (s) processor (s) peak memory", "ASGD[1024] 93 90.5 850 MB",
    ]  # fmt: skip


def test_times_to_an_accuracy_are_crossed_with_the_numbers_of_agents() -> None:
    """What was not reached says how long it was tried for; there is no straggler among one."""
    time, elapsed = simulations.TIME_TO_ACCURACY, simulations.ELAPSED_TIME
    assert lines(
        (time, "allreduce, fast[1]", 0, 9.5), (time, "allreduce, fast[64]", 0, math.inf),
        (time, "allreduce, fast, straggler[64]", 0, 2.25),
        (elapsed, "allreduce, fast[64]", 0, 10.0), (elapsed, "allreduce, fast[64]", 1, 12.5),
    ) == [
        "virtual time to accuracy (s) 1 agent 64 agents", "allreduce, fast 9.5 > 12.5",
        "allreduce, fast, straggler – 2.25",
    ]  # fmt: skip


def test_exchanges_stand_beside_their_formulas() -> None:
    """In ms; what costs nothing has no ratio."""
    assert lines(
        ("exchange_time", "allreduce, slow[4]", 0, 0.042),
        ("predicted_exchange_time", "allreduce, slow[4]", 0, 0.04),
        ("exchange_time", "allreduce, slow[1]", 0, 0.0),
        ("predicted_exchange_time", "allreduce, slow[1]", 0, 0.0),
    ) == ["one exchange (ms) predicted found found/predicted", "allreduce, slow[4] 40 42 1.05"]


def test_times_in_turn_are_crossed_with_their_sides() -> None:
    """In ms, under whatever name they have; d5ray knows none of them."""
    assert lines(
        ("update_time", "lenet[1] Adam d5ray", 0, 0.001), ("update_time", "lenet[1] Adam fused", 0, 0.002),
        ("update_time", "lenet[1] SGD d5ray", 0, 0.003), ("update_time", "lenet[1] SGD torch", 0, 0.004),
        ("pass_time", "torch lenet[1] training d5ray", 0, 0.25),
        ("pass_time", "torch lenet[1] training by hand", 0, 0.5),
    ) == [
        "update_time (ms) d5ray fused torch", "lenet Adam 1 2 –", "lenet SGD 3 – 4",
        "pass_time (ms) d5ray by hand", "torch lenet training 250 500",
    ]  # fmt: skip
