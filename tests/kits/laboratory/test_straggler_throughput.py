"""Claims about the cost of stragglers: whose steps count, what a rate is, and what a device takes."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import d5ray as d5
from d5ray.frameworks.torch import from_model
from d5ray.kits.laboratory.comparisons.contenders import RankSeries
from d5ray.kits.laboratory.jobs.agent_rates import rates
from d5ray.kits.laboratory.jobs.stragglers import OnCores, OnDevices, Simulated, on_device
from d5ray.recipes import straggler_throughput as recipe
from tests.kits.laboratory.comparing import job_of

LENET_BYTES = 4 * 21_386  # of LeNet's parameters on the digits


def recorded(*agents: list[tuple[str, float, int]]) -> pa.Table:
    """What each agent recorded: its steps, one after the other, as (phase, seconds, samples)."""
    rows = []
    for rank, steps in enumerate(agents):
        ended = 0.0
        for step, (phase, seconds, samples) in enumerate(steps):
            ended += seconds
            for metric, value in (("step_time", seconds), ("samples", float(samples)), ("loss", 7.0)):
                rows.append((rank, step, phase, metric, value, round(ended * 1e9)))
    names = ("rank", "step", "phase", "metric", "value", "t_mono")
    rows.reverse()  # tables come in any order
    return pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)})


def found(series: list[RankSeries], metric: str) -> dict[int, list[float | None]]:
    """The values of one metric by rank."""
    return {one.rank: list(one.values) for one in series if one.metric == metric}


# -- what counts -------------------------------------------------------------------------------------------


def test_a_rate_is_that_of_an_agents_own_steps_while_all_train() -> None:
    """Rank 0: three steps of 1 s, done at 4 s; rank 1's last one ends at 10 s and does not count."""
    series = rates(
        recorded(
            [("warmup", 1.0, 99), ("train", 1.0, 8), ("train", 1.0, 8), ("train", 1.0, 2)],
            [("train", 3.0, 8), ("train", 1.0, 4), ("train", 6.0, 8)],
        )
    )
    assert found(series, "samples_per_second") == {0: [18 / 3], 1: [12 / 4]}
    assert found(series, "agent_step_time") == {0: [1.0, 1.0, 1.0], 1: [3.0, 1.0]}


def test_an_agent_that_never_trained_with_the_others_has_no_rate() -> None:
    with pytest.raises(d5.D5Error, match=r"agent 1 ended no step .*: let all do more steps"):
        rates(recorded([("train", 1.0, 8)], [("train", 2.0, 8)]))


# -- the simulated contenders, against closed forms --------------------------------------------------------


def rate(rule: d5.DistributedOptimizer, tmp_path: Path, **changes: Any) -> float:
    """Samples a second of four simulated agents together."""
    contender = Simulated(rule, 4)
    folder = tmp_path / contender.name
    folder.mkdir()
    series = contender.measure(job_of(recipe, **changes), folder)
    return sum(value for (value,) in found(series, "samples_per_second").values() if value is not None)


def test_synchronous_agents_go_at_the_stragglers_pace(tmp_path: Path) -> None:
    """Allreduce: every 4 · 20 ms + α log₂ 4 + βn log₂ 4, or halving and doubling, 4 · 32 samples."""
    alpha, beta = 50e-6, 1 / 1.25e9
    exchange = min(2 * (alpha + beta * LENET_BYTES), 4 * alpha + 2 * beta * LENET_BYTES * 3 / 4)
    assert rate(d5.optimizers.AllreduceSGD(), tmp_path, steps=8) == pytest.approx(
        128 / (0.08 + exchange), rel=1e-6
    )


@pytest.mark.parametrize("rule", recipe.ASYNCHRONOUS, ids=repr)
def test_asynchronous_agents_go_at_their_own_pace(rule: d5.DistributedOptimizer, tmp_path: Path) -> None:
    """3 · 32 samples every 20 ms and 32 every 80 ms are 5,200 a second, less what exchanges cost."""
    assert 0.9 * 5200 < rate(rule, tmp_path, steps=40) < 5200


# -- devices -----------------------------------------------------------------------------------------------


def test_a_gradient_on_a_device_is_the_same_and_takes_as_long_as_said() -> None:
    """LeNet on eight digits: at least 30 ms, and the core is free meanwhile."""
    data = d5.datasets.load_dataset("digits")
    inputs, labels = data.train.inputs[:8], data.train.labels[:8]
    given: dict[str, Any] = {
        "sample_shape": data.sample_shape, "classes": 10, "loss": d5.operators.SoftmaxCrossEntropyLoss(),
        "seed": 1,
        "threads": 1,
    }  # fmt: skip
    plain = from_model("lenet", {}, **given)
    elsewhere = on_device("lenet", {}, seconds=0.03, **given)
    plain.inference_and_backprop(inputs, labels)
    wall, processor = time.perf_counter(), time.thread_time()
    elsewhere.inference_and_backprop(inputs, labels)
    assert time.perf_counter() - wall >= 0.03
    assert time.thread_time() - processor < 0.025
    assert np.array_equal(plain.gradients, elsewhere.gradients) and np.abs(plain.gradients.numpy()).max() > 0


# -- the recipe --------------------------------------------------------------------------------------------


def test_only_the_last_agent_is_slow_on_cores_as_on_devices() -> None:
    made = job_of(recipe, device_seconds=0.005)
    for contender in (OnCores(d5.optimizers.ASGD(), 4), OnDevices(d5.optimizers.ASGD(), 4)):
        experiment = contender.experiment(made, "digits")
        assert [experiment.straggler_delay(rank).factor() for rank in range(4)] == [1, 1, 1, 4]
