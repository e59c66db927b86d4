"""Claims about tokens a second and model FLOP utilisation, from rows as an agent writes them"""

from typing import Any

import pyarrow as pa
import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.metrics.record.schema import table_of
from d5ray.recipes.engine.parsing.measured import check_measured
from tests.beside_kits import cases_of

Written = tuple[str, int, int, str, float]  # metric, rank, step, phase, value


def tables(rows: list[Written]) -> dict[str, pa.Table]:
    same: dict[str, Any] = {
        "run_id": "r", "node": "n", "attempt": 0, "level": 3, "unit": "1", "scope": "agent", "rep": 0,
        "loops": 1, "status": "ok", "source": "measured", "t_wall": 0, "t_mono": 0,
    }  # fmt: skip
    found = [
        same
        | {"metric": metric, "rank": rank, "agent": f"agent-{rank}", "step": step, "phase": phase}
        | {"value": value, "seq": number}
        for number, (metric, rank, step, phase, value) in enumerate(rows)
    ]
    return {"samples": table_of("samples", found)}


PEAKS: list[Written] = [
    ("agent_peak_flop_rate", rank, 0, "event", value) for rank in (0, 1) for value in (4e9, 5e9)
]
STEPS: list[Written] = [
    row
    for rank in (0, 1)
    for row in (
        *(("model_flops", rank, step, "train", 1e9) for step in range(8)),
        *(("tokens", rank, step, "train", 100.0) for step in range(8)),
        *(("step_time", rank, step, "train", 0.4 + 0.1 * rank) for step in range(2, 8)),
        *(("step_time", rank, step, "warmup", 9.0) for step in range(2)),
    )
]


def test_it_is_what_the_model_needs_over_time_and_peaks() -> None:
    """By hand: a step takes its slowest agent's time, the agents' best peaks add up, warm-up is left out."""
    run = tables([*PEAKS, *STEPS])
    assert d5.metrics.ModelFlopUtilisation().estimate(run).value == pytest.approx(2e9 / 0.5 / 1e10)
    assert d5.metrics.TokensPerSecond().estimate(run).value == pytest.approx(200 / 0.5)


def test_virtual_times_are_not_the_machines() -> None:
    """What a simulated run takes says nothing of a share of the peak; tokens a virtual second it has."""
    fact = {"run_id": "r", "node": "n", "key": "communicator", "value": "simulated"}
    run = tables([*PEAKS, *STEPS]) | {"environment": table_of("environment", [fact])}
    found = d5.metrics.ModelFlopUtilisation().estimate(run)
    assert found.value is None and "simulation" in found.reason
    assert d5.metrics.TokensPerSecond().estimate(run).value == pytest.approx(200 / 0.5)


@pytest.mark.parametrize("lacking", ["agent_peak_flop_rate", "model_flops", "step_time"])
def test_without_its_rows_it_says_which_are_lacking(lacking: str) -> None:
    found = d5.metrics.ModelFlopUtilisation().estimate(
        tables([row for row in (*PEAKS, *STEPS) if row[0] != lacking])
    )
    assert found.value is None and lacking in found.reason


def of_texts() -> list[tuple[Any, str]]:
    return [
        (d5.metrics.TextBitsPerByte() <= 3, "TextCompression"),
        (d5.metrics.BLEU() >= 30, "TranslationQuality"),
        (d5.metrics.LabelErrorRate() <= 0.1, "SequenceErrors"),
    ]


def test_a_recipe_without_the_event_is_told_of_it() -> None:
    """Before anything starts."""
    for metric, event in (
        (d5.metrics.TokensPerSecond() >= 1, "MeasureUtilisation"),
        (d5.metrics.ModelFlopUtilisation() >= 0.1, "MeasureUtilisation"),
        *cases_of("workloads", of_texts),
    ):
        experiment = d5.Experiment("mlp", "digits", d5.optimizers.SGD(0.1))
        with pytest.raises(ConfigurationError, match=f"add {event}.* to the events"):
            check_measured([metric], experiment)
