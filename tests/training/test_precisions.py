"""Claims about trainings in a precision: they reach what float32 reaches, stay equal, and go on"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from tests.agents import agents_in_threads
from tests.distributed.in_numpy import flat
from tests.together import together

pytestmark = pytest.mark.usefixtures("own_home")

Array = np.ndarray[Any, Any]
DIGITS = d5.datasets.load_dataset("digits")
SEEDS = range(6)


def experiment(**changes: Any) -> Experiment:
    """A small network on digits."""
    values: dict[str, Any] = {
        "model": "mlp", "dataset": DIGITS, "batch_size": 32, "epochs": 3, "agents": 2, "seed": 3,
        "optimizer": d5.optimizers.Momentum(0.05, 0.9), "warmup_steps": 0,
    }  # fmt: skip
    return Experiment.from_values(**(values | changes))


def test_accumulation_in_float64_is_exact_to_1e_12() -> None:
    """By pieces and by the large batch, after epochs with remainders, exchanged as float64."""
    reached = []
    for changes in ({"batch_size": 48}, {"batch_size": 8, "accumulate": 6}):
        with d5.simulate(experiment(precision="float64", epochs=1, evaluate=False, **changes)) as group:
            group.train(progress=False)
            reached.append(flat(group))
            assert reached[-1].dtype == np.float64
            assert {value.dtype for value in group.state_dict().values()} == {torch.float64}
    np.testing.assert_allclose(reached[1], reached[0], rtol=0, atol=1e-12)


@pytest.mark.full
@pytest.mark.parametrize("precision", ["bfloat16", "float16", "float64"])
def test_digits_are_learnt_as_well_as_in_float32(precision: str) -> None:
    """The median accuracy lies in the interval of float32's, or above: of six seeds least and greatest."""
    found: dict[str, list[float]] = {"float32": [], precision: []}
    for each, accuracies in found.items():
        for seed in SEEDS:
            with d5.simulate(experiment(precision=each, seed=seed)) as group:
                group.train(progress=False)
                table = group.metrics().to_pandas()
                accuracies.append(float(table[table["metric"] == "test_accuracy"]["value"].iloc[-1]))
    low = min(found["float32"])
    assert float(np.median(found[precision])) >= low
    assert float(np.median(found["float32"])) > 0.9


def test_agents_in_float16_stay_equal() -> None:
    """Each scales its own loss, from a scale that is too large at first: none leaves a step out."""
    wanted = experiment(precision="float16", epochs=1, evaluate=False, communicator="shared_memory")
    with agents_in_threads(wanted, DIGITS) as (agents, _):
        for rank, agent in enumerate(agents):
            agent.executor._precision.scale.value = 2.0 ** (40 + 3 * rank)  # type: ignore[attr-defined]
        together(lambda rank: agents[rank].train(6), len(agents))
        first, second = (agent.flat_parameters() for agent in agents)
        scales = [agent.executor._precision.scale.value for agent in agents]  # type: ignore[attr-defined]
    assert np.array_equal(first, second)
    assert np.isfinite(first).all()
    assert max(scales) < 2.0**40


def test_a_training_in_float16_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """From a checkpoint with the scale that it had, to the parameters of one that never stopped."""
    saved = experiment(
        precision="float16", epochs=1, evaluate=False, events=d5.events.Checkpoint(every_steps=4)
    )
    with d5.simulate(saved) as group:
        group.train(4, progress=False)
        run = group.folder
        group.train(4, progress=False)
        expected = flat(group)
    with d5.simulate(saved, resume=run / "checkpoints" / "step-00000004") as group:
        group.train(4, progress=False)
        assert np.array_equal(flat(group), expected)


def test_a_run_in_another_precision_is_another_experiment(tmp_path: Path) -> None:
    """Its hash differs, its description says so, and a checkpoint of one is refused by the other."""
    plain, half = experiment(), experiment(precision="bfloat16")
    assert plain.hash != half.hash
    assert half.describe()["precision"] == "bfloat16" and "precision" not in plain.describe()
    saved = experiment(epochs=1, evaluate=False, events=d5.events.Checkpoint(every_steps=2))
    with d5.simulate(saved) as group:
        group.train(2, progress=False)
        run = group.folder
    with (
        pytest.raises(ConfigurationError, match=r"its precision was null, here it is .bfloat16"),
        d5.simulate(saved.with_values(precision="bfloat16"), resume=run),
    ):
        pass


def test_a_model_trained_in_half_precision_is_given_back_in_float32() -> None:
    """The accuracy that was recorded is that of the model which comes out, by plain PyTorch."""
    with d5.simulate(experiment(precision="bfloat16", epochs=2)) as group:
        group.train(progress=False)
        table = group.metrics().to_pandas()
        recorded = float(table[table["metric"] == "test_accuracy"]["value"].iloc[-1])
        model = group.model()
    assert {each.dtype for each in model.parameters()} == {torch.float32}
    with torch.no_grad():
        scores = model(torch.from_numpy(np.array(DIGITS.test.inputs)))
    assert float(np.mean(scores.argmax(1).numpy() == DIGITS.test.labels)) == pytest.approx(recorded)
