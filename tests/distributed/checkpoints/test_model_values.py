"""What a module and its loss keep beside tensors, in checkpoints, after deaths, and in the model given out"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import d5ray as d5
from d5ray.archive.models import export_model
from d5ray.errors import AgentError, ConfigurationError
from d5ray.frameworks.torch.module_values import ModuleValues
from tests.frameworks.changing_modules import (
    CASES,
    MODULES,
    Counts,
    CountsInClosure,
    Cycles,
    Switches,
    scripted,
)
from tests.plain_torch import TwoLayers, samples

SAVED, STEPS = 4, 7
pytestmark = pytest.mark.filterwarnings(
    "ignore:.torch.jit.script. is deprecated", "ignore:The .grad attribute of a Tensor"
)
Tensors = dict[str, np.ndarray[Any, Any]]


def experiment(kind: Any, loss: Any, *events: Any, **options: Any) -> d5.Experiment:
    torch.manual_seed(5)
    return d5.Experiment.from_values(
        **{
            "model": kind(), "dataset": samples(48), "loss": loss, "optimizer": d5.optimizers.SGD(0.3),
            "agents": 2, "batch_size": 4, "epochs": 9, "seed": 5, "evaluate": False, "monitor_seconds": 0,
            "events": events,
        } | options
    )  # fmt: skip


def parameters(given: d5.Experiment, steps: int = STEPS, **options: Any) -> list[Tensors]:
    with d5.simulate(given, **options) as group:
        group.train(steps=steps, progress=False)
        return [group.parameters(rank) for rank in range(len(group.agents))]


def check_equal(found: list[Tensors], expected: list[Tensors]) -> None:
    for own, other in zip(found, expected, strict=True):
        for name, value in other.items():
            np.testing.assert_array_equal(own[name], value, err_msg=name)


@pytest.mark.parametrize("name", CASES)
def test_a_training_goes_on_as_if_it_had_not_stopped(name: str, tmp_path: Path) -> None:
    saving = d5.events.Checkpoint(every_steps=SAVED, path=str(tmp_path))
    parameters(experiment(*CASES[name], saving), steps=SAVED)
    found = parameters(experiment(*CASES[name]), steps=STEPS - SAVED, resume=tmp_path)
    check_equal(found, parameters(experiment(*CASES[name])))


class Slowing(torch.optim.SGD):
    """Counts its steps in an attribute, which PyTorch's `state_dict` has not."""

    steps = 0

    def step(self, closure: Any = None) -> Any:
        self.steps += 1
        self.param_groups[0]["lr"] = 0.3 / self.steps
        return super().step(closure)


def test_an_optimizer_of_ones_own_goes_on_with_its_numbers(tmp_path: Path) -> None:
    saving = d5.events.Checkpoint(every_steps=SAVED, path=str(tmp_path))
    case = TwoLayers, cross_entropy
    parameters(experiment(*case, saving, optimizer=Slowing), steps=SAVED)
    found = parameters(experiment(*case, optimizer=Slowing), steps=STEPS - SAVED, resume=tmp_path)
    check_equal(found, parameters(experiment(*case, optimizer=Slowing)))


class SetsLater(Counts):
    """Its closure's variable has no value before the first pass."""

    def prepare(self) -> None:
        passes = 0

        def part() -> float:
            nonlocal passes
            passes = 3
            return 0.5

        del passes
        self.part = part  # type: ignore[method-assign]

    def between(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.tanh(hidden) * self.part()


CHANGED = {Counts: {"passes", "reached"}, CountsInClosure: {"part.0", "reached"}, SetsLater: {"part.0"}}


@pytest.mark.parametrize("kind", CHANGED)
def test_what_changes_is_seen_and_nothing_else(kind: Any) -> None:
    """By a pass, or by the program: an attribute of a part of PyTorch's, a part that was added."""
    module = kind()
    values = ModuleValues(module, None, dict(module.named_parameters()))
    assert values.changed() == {}
    module(torch.zeros(1, 4))
    assert values.changed().keys() == (seen := CHANGED[kind])
    name, part = next((name, part) for name, part in module.named_modules() if name)
    part.in_features = 7
    assert values.changed().keys() == (seen := seen | {f"{name}.in_features"})
    module.added = torch.nn.Dropout(0.2)
    assert values.changed().keys() == seen | {f"added.{each}" for each in ("p", "inplace", "training")}


@pytest.mark.parametrize("name", CASES)
def test_agents_go_on_after_a_death_as_if_there_had_been_none(name: str) -> None:
    given = experiment(*CASES[name], on_failure="restart")
    found = parameters(given, faults=d5.Faults().kill(agent=1, at_step=2))
    check_equal(found, parameters(given))


def scripting() -> Any:
    """Scripted where it is made, since no scripted module can be pickled."""
    return scripted


@pytest.mark.parametrize("kind", [*MODULES, scripting])
def test_the_model_that_is_given_out_evaluates_as_the_agent(kind: Any, tmp_path: Path) -> None:
    saving = d5.events.Checkpoint(path=str(tmp_path))
    inputs = samples().test.inputs
    with d5.simulate(experiment(kind, cross_entropy, saving, epochs=1)) as group:
        group.train(progress=False)
        expected = group.agents[0].executor.inference(inputs)
        models = [group.model(0), group.model("mean")]
    for model in (*models, d5.load_model(group.folder.name), d5.load_model(tmp_path)):
        assert not any(part.training for part in model.modules())
        with torch.no_grad():
            np.testing.assert_allclose(model(torch.from_numpy(inputs)).numpy(), expected, atol=1e-6)


class Generates(Counts):
    def prepare(self) -> None:
        self.parts = [(part / 6 for part in range(1, 99))]

    def part(self) -> float:
        return next(self.parts[0])


REFUSED = {
    Cycles: "the model.parts is a cycle",
    Switches: "act.*relu",
    Generates: "the model.parts.* generator",
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_no_checkpoint_keeps_is_refused_by_name(kind: Any, tmp_path: Path) -> None:
    saving = d5.events.Checkpoint(every_steps=1, path=str(tmp_path))
    with pytest.raises(AgentError, match=REFUSED[kind]):
        parameters(experiment(type(None), cross_entropy, saving, model=kind))


@pytest.mark.parametrize("kind", REFUSED)
def test_a_model_is_not_given_out_without_what_it_has_become(kind: Any, tmp_path: Path) -> None:
    """Not by a group, nor by its run; its tensors are."""
    with d5.simulate(experiment(type(None), cross_entropy, epochs=1, model=kind)) as group:
        group.train(progress=False)
        expected = group.state_dict()
        for rank in (0, "mean"):
            with pytest.raises(ConfigurationError, match=f"{REFUSED[kind]}.*made again.*state_dict"):
                group.model(rank)
    name = group.folder.name
    with pytest.raises(ConfigurationError, match=f"{REFUSED[kind]}.*made again.*safetensors"):
        d5.load_model(name)
    with pytest.raises(ConfigurationError, match=f"{REFUSED[kind]}.*made again"):
        export_model(name, "onnx", tmp_path / "model.onnx")
    found = torch.load(export_model(name, "state_dict", tmp_path / "model.pt"))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[each], expected[each]) for each in found)
