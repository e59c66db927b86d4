"""The consensus distance as it is seen while a run goes on is the metric of the run so far"""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from d5ray.metrics.definitions.asynchrony import ConsensusDistance
from d5ray.metrics.record.live_consensus import MOST_STEPS, Probes
from d5ray.metrics.record.schema import table_of


def probes(steps: list[int], rank: int, rng: np.random.Generator) -> pa.RecordBatch:
    """The events of one agent."""
    rows: list[dict[str, Any]] = [
        {"run_id": "r", "agent": f"a{rank}", "rank": rank, "name": "probe", "step": step,
         "t_wall": 0, "t_mono": step, "detail": f'{{"values": {rng.normal(1, 1, 8).tolist()}}}'}
        for step in steps
    ]  # fmt: skip
    rows.append(rows[0] | {"name": "push", "detail": "{}"})
    return table_of("events", rows).combine_chunks().to_batches()[0]


def test_it_is_the_metric_at_the_last_step_that_all_have_probed() -> None:
    """Agents of different pace; each batch is looked at, or several at once."""
    rng, seen, events = np.random.default_rng(3), Probes(), []
    seen.agents = 3
    assert seen.distance() is None
    for rank, steps in [(0, [0, 20, 40, 60]), (1, [0]), (2, [0, 20]), (1, [20, 40]), (2, [40])]:
        events.append(probes(steps, rank, rng))
        seen.take(events[-1])
        so_far = ConsensusDistance().estimate({"events": pa.Table.from_batches(events)}).value
        if len(events) >= 3:
            assert seen.distance() == pytest.approx(so_far, rel=1e-12)
        else:
            assert seen.distance() is None


def test_one_agent_has_nobody_to_be_apart_from_and_what_stays_open_is_bounded() -> None:
    """Steps that never get complete do not fill the memory."""
    rng, seen = np.random.default_rng(3), Probes()
    seen.agents = 1
    seen.take(probes(list(range(3)), 0, rng))
    assert seen.distance() is None
    seen.agents = 2
    seen.take(probes(list(range(5 * MOST_STEPS)), 0, rng))
    assert seen.distance() is None
    assert len(seen._values) == MOST_STEPS
