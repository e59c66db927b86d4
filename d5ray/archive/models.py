"""The trained model of a run: made again of its experiment and its tensors, and written for other programs"""

import base64
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from d5ray.archive import experiments
from d5ray.checks import check_kind
from d5ray.distributed.checkpoints.checkpoint import Checkpoints
from d5ray.distributed.checkpoints.folder import MANIFEST, CheckpointFolder
from d5ray.distributed.checkpoints.named_tensors import NO_VALUES, OWN, VALUES, give_values, model_arrays
from d5ray.errors import ConfigurationError, nearest
from d5ray.experiment import Experiment
from d5ray.failures.program_state import as_before
from d5ray.frameworks import framework_name
from d5ray.frameworks.initial_values import trained_network
from d5ray.metrics.judge.run_series import RunSeries
from d5ray.metrics.record.artifacts import MODEL
from d5ray.metrics.record.files import replacing
from d5ray.metrics.record.model_state import ModelState, kept_model
from d5ray.metrics.record.reader import Run
from d5ray.metrics.record.tensor_file import parsed_with_facts
from d5ray.networks.executors.trees import form_of, is_inner
from d5ray.networks.microbatch.freezing import evaluating
from d5ray.networks.network import Network

TORCH: Final = "d5ray.frameworks.torch"
FORMATS: Final = {  # and the endings of their files
    "safetensors": ".safetensors",
    "state_dict": ".pt",
    "onnx": ".onnx",
    "keras": ".keras",
}


def model_of(experiment: Experiment, state: ModelState) -> Any:
    """The model that this experiment trains, with these tensors, in evaluation mode.

    The framework's own module, or a `Network` where the model is one. Raises `ConfigurationError` where the
    experiment's executor is the user's own, so that nobody knows the model, for tensors of another one, and
    where training has changed in a model what cannot be kept.
    """
    if state.lost:
        raise ConfigurationError(
            f"{state.lost}; so the model of {state.of} cannot be made again as it was trained: state_dict(), "
            "or export --to safetensors, has its tensors, which load into a model of your own"
        )
    framework = framework_name(experiment.make_executor)
    if not framework:
        raise ConfigurationError(
            f"the executor {experiment.executor!r} is one of your own, so only you know what its model is: "
            "load the tensors of state_dict() into it"
        )
    # Some frameworks run Networks alone.
    adapter = import_module(f"d5ray.frameworks.{framework}")
    make: Callable[..., Any] = getattr(adapter, "trained_model", trained_network)
    made = make(
        experiment.model,
        experiment.model_kwargs,
        state.tensors,
        sample_shape=state.sample_shape,
        classes=state.classes,
        seed=experiment.seed,
    )
    if state.values:
        data = np.frombuffer(base64.b64decode(state.values), np.uint8)
        values = import_module(f"{TORCH}.module_values").ModuleValues(made, None, {})
        give_values(values, data, next(iter(made.parameters())).detach())
        made.eval()
    return made


@as_before()
def load_model(run: str | Path | Run, *, trust: bool = False) -> Any:
    """The trained model that a run keeps, or that of a checkpoint, made again, in evaluation mode.

    run: a `Run`, its name, the beginning of one, or "last"; or the path of a checkpoint. trust: read an
    experiment with code in it that comes from elsewhere. Raises `ConfigurationError` where no model is kept,
    or not the experiment of which it is made.
    """
    state, experiment, _ = _found(run, trust=trust)
    return model_of(experiment(), state)


def checkpoint_state(path: str | Path, root: Path | None = None) -> ModelState:
    """The model of the first agent in a checkpoint: in its folder, or the last one of a folder of several.

    It is the one that the agent trains, which an evaluation may see otherwise under some rules. root: where
    runs are. Raises `ConfigurationError` where there is none, or where the agents of a mesh have shares of
    the network, and `StorageError` for the format of before, which has no tensors by name.
    """
    found = Checkpoints.find(path, root)
    folder = CheckpointFolder(found.path)
    if found.manifest["experiment"].get("mesh"):
        raise ConfigurationError(
            f"{found} is of a mesh, each of whose agents has a share of the network: let the run complete, "
            "and export its model"
        )
    tensors, facts = parsed_with_facts(folder.read(found.step, "agent-0.safetensors"), str(found))
    values = tensors.get(f"{OWN}{VALUES}", NO_VALUES)
    facts = {**facts, VALUES: base64.b64encode(values.tobytes()).decode()}
    return ModelState.of_file(model_arrays(tensors), facts, str(found))


@as_before()
def export_model(run: str | Path | Run, to: str, out: Path | None = None, *, trust: bool = False) -> Path:
    """Write a trained model, as `load_model` finds it, for other programs; where it went.

    to: "safetensors" and "state_dict" (a file of `torch.save`) hold the tensors by the model's own names;
    "onnx" and "keras" the whole model. out: by default a file here, named as the run. Nothing that exists is
    overwritten. Raises `ConfigurationError` for a model that the format cannot hold.
    """
    if to not in FORMATS:
        raise ConfigurationError(f"there is no format {to!r} of models: {nearest(to, FORMATS)}")
    state, experiment, name = _found(run, trust=trust)
    path = Path(f"{name}{FORMATS[to]}") if out is None else out
    others = {*FORMATS.values()} - {FORMATS[to]}
    if path.suffix in others or (to == "keras" and path.suffix != FORMATS[to]):  # which Keras asks for
        raise ConfigurationError(f"{path} is no name of a file of --to {to}: let it end with {FORMATS[to]}")
    if path.exists():
        raise ConfigurationError(f"{path} is there already: choose another --out, or remove it")
    made: Any = MAKERS[to](model_of(experiment(), state), state) if to in MAKERS else None
    with replacing(path) as part:
        path.parent.mkdir(parents=True, exist_ok=True)
        if to == "safetensors":
            state.write(part)
        elif to == "state_dict":
            import_module(TORCH).save_tensors(state.tensors, part)
        elif to == "onnx":
            part.write_bytes(made.SerializeToString())
        else:
            made.save(part)
    return path


def export_all(
    found: Run | RunSeries, to: str, out: Path | None = None, *, trust: bool = False
) -> dict[str, Path]:
    """Write the model of a run, or those of all runs of a series that completed; where each went, by name.

    Those of a series go side by side into the folder `out`.
    """
    if isinstance(found, Run):
        return {found.name: export_model(found, to, out, trust=trust)}
    runs = [run for run in found.counted() if (run.folder / MODEL).is_file()]
    if not runs:
        raise ConfigurationError(
            f"no run of the series {found.name} keeps a model: there is nothing to write"
        )
    folder = Path(f"{found.name}-{to}") if out is None else out
    if folder.exists():
        raise ConfigurationError(f"{folder} is there already: choose another --out, or remove it")
    names = {run.name: f"{run.name}{FORMATS[to]}" for run in runs}
    with replacing(folder) as part:
        part.mkdir(parents=True)
        for run in runs:
            export_model(run, to, part / names[run.name], trust=trust)
    return {run: folder / name for run, name in names.items()}


def _as_onnx(model: Any, state: ModelState) -> Any:
    if isinstance(model, Network):
        return evaluating(model).to_onnx()
    if hasattr(model, "trainable_variables"):  # Keras's know their inputs
        return Network.from_model(model).to_onnx()
    if not hasattr(model, "state_dict"):
        raise ConfigurationError(
            f"the model is a {type(model).__name__}, no model of PyTorch or Keras, and no others go to ONNX "
            "here: take --to safetensors or state_dict, or load_model(...) and a tool of its own framework's"
        )
    if is_inner(state.sample_shape):
        raise ConfigurationError(
            f"the model takes {form_of(state.sample_shape)}, and --to onnx writes models of one input: take "
            "safetensors, or export load_model(...) by torch.onnx.export with inputs of your own"
        )
    return import_module(TORCH).onnx_model_of(model, state.sample_shape)


def _as_keras(model: Any, _: ModelState) -> Any:
    if not hasattr(model, "trainable_variables"):
        raise ConfigurationError(
            f"the model is a {type(model).__name__}, no model of Keras: take --to safetensors, or onnx for a "
            "Network and a module of PyTorch"
        )
    return model


MAKERS: Final = {"onnx": _as_onnx, "keras": _as_keras}  # what is written of a model and its tensors


def _found(run: str | Path | Run, *, trust: bool) -> tuple[ModelState, Callable[[], Experiment], str]:
    """A model that is kept, how to get its experiment, and a name for it."""
    check_kind("run", run, str | Path | Run, "a run, its name, or the path of a checkpoint")
    if isinstance(run, Run) or not is_checkpoint(run):
        found = run if isinstance(run, Run) else Run(run)
        return kept_model(found.folder), lambda: _experiment(found, trust=trust), found.name
    state, manifest = checkpoint_state(run), Checkpoints.find(run).manifest
    name = str(manifest.get("run_id"))
    return state, lambda: _experiment(Run.find(name), trust=trust), f"{name}-step-{state.step}"


def is_checkpoint(path: str | Path) -> bool:
    """True for the folder of a checkpoint, or of several, such as `checkpoints` of a run."""
    one = Path(path).name.startswith("step-") and (Path(path) / MANIFEST).is_file()
    return one or any(Path(path).glob(f"step-*/{MANIFEST}"))


def _experiment(run: Run, *, trust: bool) -> Experiment:
    kept = experiments.read(run, trust=trust)
    if kept is None:
        raise ConfigurationError(
            f"the run {run.name} keeps no experiment, so that only its tensors are known: take "
            "--to safetensors or state_dict, and load them into the model yourself"
        )
    return kept.experiment
