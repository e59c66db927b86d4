"""The trained model of a run: its tensors by the model's own names, as a file of safetensors"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from d5ray.errors import ConfigurationError, StorageError
from d5ray.metrics.record.artifacts import MODEL
from d5ray.metrics.record.files import replacing, storing
from d5ray.metrics.record.tensor_file import Array, parsed_with_facts, pieces

TORCH: Final = "torch"


@final
@dataclass(frozen=True)
class ModelState:
    """The tensors of a trained model, in host memory, and what is needed to make the model again.

    tensors        parameters and buffers, in the model's own types, by its own names; a tensor that a model
                   holds under several names is there under each
    framework      whose arrays its users expect: "torch", or "numpy"
    sample_shape   the shape of a sample that the model takes, without the batch; of several arrays theirs
    classes        how many classes it was trained to tell apart
    step           the step after which it was taken
    of             whose it is, for people: "agent 0", "the mean of 4 agents", "the servers"
    values         what the model has beside its tensors, such as extra state, as bytes in base64
    lost           why that is not there, if it cannot be kept: the tensors are then not the whole model
    """

    tensors: Mapping[str, Array]
    framework: str
    sample_shape: Any  # a tuple of integers, or a dictionary or tuple of such
    classes: int
    step: int
    of: str
    values: str = ""
    lost: str = ""

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors."""
        return sum(each.nbytes for each in self.tensors.values())

    def state_dict(self) -> dict[str, Any]:
        """Copies of the tensors as the framework has them: PyTorch's, or arrays of NumPy."""
        if self.framework != TORCH:
            return {name: np.array(each) for name, each in self.tensors.items()}
        torch = import_module(TORCH)  # who trains with it has it
        return {name: _tensor(torch, np.array(each)) for name, each in self.tensors.items()}

    def write(self, path: Path) -> None:
        """Write the file, which appears as a whole; raises `StorageError`."""
        contiguous = {  # of which a single number has become an array (1,)
            name: np.ascontiguousarray(each).reshape(each.shape) for name, each in self.tensors.items()
        }
        with replacing(path) as part, part.open("wb") as file:
            for piece in pieces(contiguous, None, self.facts):
                file.write(piece)

    @classmethod
    def read(cls, path: Path) -> "ModelState":
        """The model of a file that `write` wrote; raises `StorageError` for another."""
        with storing(path):
            data = np.fromfile(path, np.uint8)
        return cls.of_file(*parsed_with_facts(data, str(path)), str(path))

    @classmethod
    def of_file(cls, tensors: Mapping[str, Array], facts: Mapping[str, str], what: str) -> "ModelState":
        """The model of tensors and facts that a file has; what: the file, for the error."""
        try:
            return cls(
                tensors,
                facts["framework"],
                _shape_of(json.loads(facts["sample_shape"])),
                int(facts["classes"]),
                int(facts["step"]),
                facts["of"],
                facts.get("values", ""),
                facts.get("lost", ""),
            )
        except (KeyError, ValueError, TypeError) as error:
            raise StorageError(f"{what} holds tensors, but no model that a run kept: {error!r}") from error

    @property
    def facts(self) -> dict[str, str]:
        """The header of a file, beside the tensors; `format` is what Hugging Face asks for."""
        return {
            "format": "pt" if self.framework == TORCH else "np",
            "framework": self.framework,
            "sample_shape": json.dumps(self.sample_shape),
            "classes": str(self.classes),
            "step": str(self.step),
            "of": self.of,
            **{name: each for name, each in (("values", self.values), ("lost", self.lost)) if each},
        }


def mean_of(states: Sequence[ModelState]) -> ModelState:
    """The mean model: of every floating-point tensor, computed in float64; others are the first one's."""
    first = states[0]
    tensors = {
        name: _mean([each.tensors[name] for each in states]) if _is_floating(value) else value
        for name, value in first.tensors.items()
    }
    return ModelState(
        tensors,
        first.framework,
        first.sample_shape,
        first.classes,
        max(each.step for each in states),
        f"the mean of {len(states)} agents",
        first.values,
        first.lost,
    )


def kept_model(folder: Path) -> ModelState:
    """The model that a run keeps in its folder; `ConfigurationError` where it keeps none."""
    file = folder / MODEL
    if not file.is_file():
        raise ConfigurationError(
            f"the run {folder.name} keeps no model: runs that complete do, unless save_model='no', or their "
            "model is larger than save_model_bytes; a checkpoint of it may do"
        )
    return ModelState.read(file)


def _shape_of(told: Any) -> Any:
    """The shape that JSON tells: lists of it are tuples."""
    if isinstance(told, dict):
        return {name: _shape_of(each) for name, each in told.items()}
    return tuple(_shape_of(each) if isinstance(each, (dict, list)) else int(each) for each in told)


def _mean(values: list[Array]) -> Array:
    total = np.zeros(values[0].shape, np.float64)
    for each in values:
        total += each.astype(np.float64)
    return np.asarray(total / len(values)).astype(values[0].dtype)


def _is_floating(array: Array) -> bool:
    return bool(array.dtype.kind == "f" or array.dtype.name == "bfloat16")


def _tensor(torch: Any, array: Array) -> Any:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
