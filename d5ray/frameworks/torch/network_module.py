"""A Network as an nn.Module: plain code, its parameters under the network's names"""

import keyword
import re
from collections.abc import Iterable
from typing import Any, final

import numpy as np
import torch
from torch import fx, nn

from d5ray.frameworks.torch.graph import code_of, graph
from d5ray.frameworks.torch.library import array_of, tensor_of
from d5ray.networks.executors.plan import plan
from d5ray.networks.network import Network

TAKEN = frozenset(dir(nn.Module()))  # what a module's parts cannot be called
SAFE = re.compile(r"[A-Za-z0-9_]+")


class NetworkTensors(nn.Module):
    """Parameters, constants and state of a Network as parameters and buffers of a module.

    They are registered under the network's names, "0.weight" being the weight of a part "0"; a name that
    PyTorch does not allow, such as "onnx::Conv_12", with other characters in the place of those.
    """

    def __init__(self, network: Network, trained: Iterable[str]) -> None:
        super().__init__()
        self.places: dict[str, str] = {}
        self._kinds: dict[str, np.dtype[Any]] = {}  # in the network; a tensor may only hold their numbers
        self._parameter_names = frozenset(network.parameters)
        self._state_names = frozenset(network.state_values)
        self._trained_names = frozenset(trained)
        self.adopt(network)

    def adopt(self, network: Network) -> None:
        """Register what the network has now, and is not registered yet."""
        self._parameter_names |= frozenset(network.parameters)
        self._state_names |= frozenset(network.state_values)
        for values in (network.parameters, network.constants, network.state_values):
            for name, value in values.items():
                if name not in self.places:
                    self._register(name, value)

    def tensor(self, name: str) -> torch.Tensor:
        """The parameter or buffer of this name in the network."""
        path, _, own = self.places[name].rpartition(".")
        found: torch.Tensor = getattr(self.get_submodule(path), own)
        return found

    def put(self, name: str, value: np.ndarray[Any, Any]) -> None:
        """Give a tensor another value, of any shape."""
        tensor, new = self.tensor(name), tensor_of(np.array(value))
        self._kinds[name] = value.dtype
        with torch.no_grad():
            if tensor.shape == new.shape and tensor.dtype == new.dtype:
                tensor.copy_(new)
            else:
                tensor.data = new.to(tensor.device)

    def value(self, name: str) -> np.ndarray[Any, Any]:
        """A copy of a tensor's value."""
        return np.array(array_of(self.tensor(name), self._kinds[name]))

    def own_names(self) -> dict[str, str]:
        """The network's names of its parameters and state, by those under which they are registered."""
        known = self._parameter_names | self._state_names
        return {place: name for name, place in self.places.items() if name in known}

    def _register(self, name: str, value: np.ndarray[Any, Any]) -> None:
        tensor = tensor_of(np.array(value))
        self._kinds[name] = value.dtype
        *path, own = self._path(name)
        part: nn.Module = self
        for step in path:
            if step not in part._modules:
                part.add_module(step, nn.Module())
            part = part.get_submodule(step)
        if name in self._parameter_names:
            part.register_parameter(own, nn.Parameter(tensor, requires_grad=name in self._trained_names))
        else:
            part.register_buffer(own, tensor)
        self.places[name] = ".".join((*path, own))

    def _path(self, name: str) -> tuple[str, ...]:
        parts = tuple(name.split("."))
        if all(_allowed(part) for part in parts) and self._is_free(parts):
            return parts
        plain = re.sub(r"[^A-Za-z0-9_]+", "_", name) or "tensor"
        plain = plain if _allowed(plain) else f"tensor_{plain}"
        number, free = 1, plain
        while not self._is_free((free,)):
            number += 1
            free = f"{plain}_{number}"
        return (free,)

    def _is_free(self, parts: tuple[str, ...]) -> bool:
        """True if nothing stands there, and only parts without a tensor of their own on the way."""
        taken = set(self.places.values())
        whole = ".".join(parts)
        above = {".".join(parts[:end]) for end in range(1, len(parts))}
        return (
            whole not in taken
            and taken.isdisjoint(above)
            and not any(place.startswith(f"{whole}.") for place in taken)
        )


@final
class NetworkModule(NetworkTensors):
    """The module that `d5ray.frameworks.torch.module` gives: called with the network's inputs in their order.

    It gives its one output, or a tuple of them in their order. In training mode state such as a running mean
    is replaced in every call; in evaluation mode nothing is, and Dropout lets everything pass. Both codes
    are built here, once: `graphs` has them.
    """

    def __init__(self, network: Network, trained: Iterable[str]) -> None:
        super().__init__(network, trained)
        self.inputs, self.outputs = tuple(network.inputs), tuple(network.outputs)
        self.graphs: dict[bool, fx.Graph] = {}
        for training in (True, False):
            made = plan(network, self.outputs, training=training)
            self.graphs[training] = graph(network, made, self.places, evaluating=not training)
        self._reads = tuple(place for place, name in enumerate(self.inputs) if name in made.inputs)
        self._training_code = code_of(self.graphs[True], self)
        self._evaluating_code = code_of(self.graphs[False], self)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """The network's output, or a tuple of its outputs in their order."""
        if len(self._reads) != len(inputs):
            inputs = tuple(inputs[place] for place in self._reads)
        code = self._training_code if self.training else self._evaluating_code
        made = code(self, *inputs)
        return made[0] if len(made) == 1 else made


def own_names(module: nn.Module) -> dict[str, str]:
    """The names that a model gives its tensors, by those of the module's `state_dict`."""
    if isinstance(module, NetworkTensors):
        return module.own_names()
    return {name: name for name in module.state_dict(keep_vars=True)}


def _allowed(part: str) -> bool:
    return bool(SAFE.fullmatch(part)) and not keyword.iskeyword(part) and part not in TAKEN and part[0] != "_"
