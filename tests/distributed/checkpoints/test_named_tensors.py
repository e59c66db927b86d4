"""Claims about a checkpoint's tensors: others read the model out of it, and former files are still read"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import d5ray as d5
from d5ray.archive.models import checkpoint_state, export_model
from d5ray.distributed.checkpoints.folder import CheckpointFolder
from d5ray.distributed.checkpoints.named_tensors import OWN, fill_model, model_arrays, own_arrays, with_model
from d5ray.errors import ConfigurationError, StorageError
from d5ray.metrics.record.tensor_file import parsed
from tests.archive.trained_models import Awkward
from tests.distributed.checkpoints import former_format
from tests.distributed.quadratic import QuadraticExecutor

Array = np.ndarray[Any, Any]


def experiment(**changes: Any) -> d5.Experiment:
    values: dict[str, Any] = {
        "model": Awkward, "dataset": "digits", "optimizer": d5.optimizers.Momentum(0.05, 0.9), "agents": 2,
        "batch_size": 64, "seed": 3,
    }  # fmt: skip
    return d5.Experiment(**(values | changes))


def test_a_model_comes_out_of_a_checkpoint(tmp_path: Path) -> None:
    """Every tensor of the module, tied and frozen ones too, as the agents have them then: by safetensors, and
    as out of a run. Of the first format they say why not."""
    with d5.simulate(experiment(events=d5.events.Checkpoint(every_steps=5))) as group:
        group.train(5, progress=False)
        wanted = group.state_dict(0)
    path = group.folder / "checkpoints" / "step-00000005"
    file = path / "agent-0.safetensors"
    tensors, module = load_file(file), Awkward()
    found = module.load_state_dict(tensors, strict=False)
    assert not found.missing_keys and all(name.startswith(OWN) for name in found.unexpected_keys)
    names = [name for name, _ in module.named_parameters()]  # statistics are not averaged by then
    state = checkpoint_state(path)
    assert state.step == 5 and set(wanted) == set(state.state_dict())
    for each in (module.state_dict(), state.state_dict()):
        assert all(torch.equal(each[name], wanted[name]) for name in names)
    with safe_open(file, "pt") as opened:
        assert opened.metadata()["format"] == "pt"  # what Hugging Face asks for
    assert {*load_file(file.with_name("agent-1.safetensors"))} < {*tensors}  # without what all have alike
    for place in (path, path.parent):
        loaded = d5.load_model(place)
        assert isinstance(loaded, Awkward) and torch.equal(loaded.head.weight, wanted["head.weight"])
    written = export_model(path, "state_dict", tmp_path / "model.pt")
    assert torch.equal(torch.load(written, weights_only=True)["head.weight"], wanted["head.weight"])
    with pytest.raises(StorageError, match="of the first format, which has no tensors by name"):
        checkpoint_state(former_format.FOLDER)
    with pytest.raises(ConfigurationError, match="no complete checkpoint"):
        checkpoint_state(tmp_path / "none")


def test_a_checkpoint_of_the_first_format_is_resumed_bit_for_bit(tmp_path: Path) -> None:
    """One that was written then: parameters, statistics, the counter and the momentum of both agents."""
    folder = CheckpointFolder(str(former_format.FOLDER))
    assert folder.manifest(former_format.STEP)["format"] == 1
    with d5.simulate(former_format.experiment(), resume=former_format.FOLDER) as group:
        for rank, agent in enumerate(group.agents):
            old, text = parsed(folder.read(former_format.STEP, f"agent-{rank}.safetensors"), "file")
            assert np.array_equal(agent.flat_parameters(), old["parameters"])
            state = agent.executor.named_state()
            held = np.concatenate([state["1.running_mean"], state["1.running_var"]])
            assert np.array_equal(held, old["untrained"])
            assert np.array_equal(state["1.num_batches_tracked"].reshape(-1), old["counter.0"])
            kept = [array for name, array in old.items() if name.startswith("optimizer._states")]
            (state_of_rule,) = agent.connections.optimizer._states.values()
            assert len(kept) == 1 and np.array_equal(kept[0], next(iter(state_of_rule.values())).numpy())
            assert json.loads(text)["now"]["step"] == former_format.STEP
        outcome = group.train(progress=False)
    assert outcome.completed and outcome.step == 2 * group.built.steps_per_epoch


def test_an_executor_of_ones_own_without_names_of_its_state_comes_back() -> None:
    """Its flat arrays are kept under d5ray's names; what another one's file lacks is named."""
    size = max(slot.offset + slot.size for slot in QuadraticExecutor.slots)
    start = np.arange(float(size))
    first, second = (QuadraticExecutor(np.eye(size), np.zeros(size), x) for x in (start, 0 * start))
    first.buffers[...], first.counters[0][...] = 5.0, 9
    arrays = with_model(first, {"random": np.zeros(0, np.uint8), "own": np.ones(2)}, whole=True)
    arrays = {name: np.array(array) for name, array in arrays.items()}
    assert {"random", "own"} < own_arrays(arrays).keys()
    assert {slot.name for slot in first.slots} <= model_arrays(arrays).keys()
    fill_model(second, arrays)
    assert np.array_equal(second.numpy_parameters(), start)
    assert np.array_equal(second.buffers, [5.0, 5.0]) and int(second.counters[0]) == 9
    del arrays[first.slots[0].name]
    with pytest.raises(StorageError, match=first.slots[0].name):
        fill_model(second, arrays)
