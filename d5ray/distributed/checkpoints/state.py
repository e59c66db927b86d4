"""The state of any object as JSON and named arrays, and back into an object that was made anew"""

import random
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from d5ray.distributed.checkpoints.packed import Packed
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.one_sided.peers import Peers
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.parameter_server.client import Server
from d5ray.errors import ConfigurationError, StorageError
from d5ray.frameworks.host import host_copy, host_view, native, on_device
from d5ray.identity.moved import first_class_name
from d5ray.networks.executors.delayed import DelayedExecutor
from d5ray.networks.executors.executor import Executor
from d5ray.training.events.event import Event
from d5ray.training.optimizers.deep500_rules import ThreeStepOptimizer
from d5ray.training.optimizers.native import Engine

Array = np.ndarray[Any, Any]

SEQUENCES: Final[dict[str, Callable[[Any], Any]]] = {
    "tuple": tuple, "Size": tuple, "list": list, "set": set, "frozenset": frozenset, "deque": deque,
}  # fmt: skip
MAPPINGS: Final[dict[str, Callable[[], Any]]] = {
    "dict": dict, "Counter": Counter, "OrderedDict": OrderedDict, "defaultdict": dict,
}  # fmt: skip
OF_A_WORLD: Final = (Server, Peers)  # of which real runs and simulations have classes of their own
STATEFUL: Final = (DistributedOptimizer, ThreeStepOptimizer, Event)  # of d5ray's own, or derived from it
MADE_ANEW: Final = (
    type, FunctionType, BuiltinFunctionType, MethodType, ModuleType, Enum, PurePath, np.dtype, range, slice,
    bytes, complex,
)  # fmt: skip


def pack(value: Any, name: str, values_of: Callable[[Any, str], Any] | None = None) -> Packed:
    """The restorable state of an object: numbers, texts, arrays, generators, and what holds them.

    What belongs to d5ray's own machinery (a communicator, a compressor, frozen data) is made anew where the
    state is restored, and not kept; of a communicator the round is kept. Arrays are what `values_of` makes of
    them and their names: by default `host_values`. Raises `ConfigurationError` for what cannot be kept, by
    its name.
    """
    packer = _Packer({}, {}, values_of or host_values)
    data = {key: packer.packed(item, f"{name}.{key}") for key, item in vars(value).items()}
    return Packed(data, packer.arrays)


def unpack_into(fresh: Any, packed: Packed, like: Any, name: str) -> None:
    """Give an object made anew the attributes of another that were packed.

    Arrays of the same shape and type, dictionaries and objects are changed in place, so that who shares them
    sees it. like: an array of the framework and device on which new ones are to be made. Raises
    `StorageError` where the two do not fit.
    """
    _Unpacker(packed.arrays, like).attributes(packed.data, fresh, name)


@dataclass
class _Packer:
    arrays: dict[str, Array]
    names: dict[int, tuple[str, Any]]  # of arrays that were met, by their identity
    values_of: Callable[[Any, str], Any]

    def packed(self, value: Any, name: str) -> Any:
        if value is None or isinstance(value, Engine):  # which is made anew from what it remembers
            return None
        if isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, np.generic):
            return {"scalar": value.item(), "dtype": value.dtype.str}
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            return self._array(value, name)
        if isinstance(value, np.random.Generator):
            return {"generator": _plain(value.bit_generator.state)}
        if isinstance(value, random.Random):
            return {"random": value.getstate()}
        if hasattr(value, "get_state") and hasattr(
            value, "set_state"
        ):  # a generator of PyTorch's, or NumPy's
            return {"state": self.packed(value.get_state(), name)}
        if isinstance(value, Communicator):
            return {"round": value.round}
        kind = type(value).__name__
        if kind in SEQUENCES and isinstance(value, (tuple, list, set, frozenset, deque)):
            return {kind: [self.packed(item, f"{name}[{at}]") for at, item in enumerate(value)]}
        if isinstance(value, dict) and kind in MAPPINGS:
            pairs = value.items()
            return {
                kind: [[self.packed(k, f"{name} key"), self.packed(v, f"{name}[{k!r}]")] for k, v in pairs]
            }
        if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
            return {"state_dict": self.packed(value.state_dict(), name)}
        if _is_made_anew(value):
            return {"kept": _standing(value)}
        if not hasattr(value, "__dict__") or _of_a_library(value):
            raise ConfigurationError(
                f"{name} is a {kind}, which a checkpoint cannot keep: it keeps arrays, numbers, texts, "
                "random generators, and lists, dictionaries and objects of them"
            )
        parts = {key: self.packed(item, f"{name}.{key}") for key, item in vars(value).items()}
        return {"object": parts, "class": first_class_name(type(value))}

    def _array(self, value: Any, name: str) -> dict[str, Any]:
        of = "numpy" if isinstance(value, np.ndarray) else type(value).__module__.partition(".")[0]
        known, _ = self.names.setdefault(id(value), (name, value))
        if known == name:
            self.arrays[name] = self.values_of(value.detach() if of == "torch" else value, name)
        return {"array": known, "of": of, "shape": list(value.shape)}


class _Unpacker:
    def __init__(self, arrays: dict[str, Array], like: Any) -> None:
        self._arrays, self._like = arrays, like
        self._made: dict[str, Any] = {}  # arrays by name: one that stood in two places does so again
        self._filled: dict[int, Any] = {}  # arrays of the fresh object, each for one

    def attributes(self, packed: dict[str, Any], fresh: Any, name: str) -> None:
        if isinstance(
            fresh, DistributedOptimizer
        ):  # its base optimizer's states are made when first asked for
            for key, _ in packed.get("_states", {"dict": []})["dict"]:
                fresh._state_of(slice(*key["tuple"]))
        for key, item in packed.items():
            setattr(fresh, key, self.value(item, vars(fresh).get(key), f"{name}.{key}"))

    def value(self, packed: Any, fresh: Any, name: str) -> Any:
        """The value that was packed; fresh: the one in its place in the object made anew."""
        if not isinstance(packed, dict):
            return packed
        (kind, content), *_ = packed.items()
        if kind == "array":
            return self._array(packed, fresh)
        if kind in SEQUENCES:
            old = list(fresh) if isinstance(fresh, (tuple, list, deque)) else []
            old += [None] * (len(content) - len(old))
            items = [self.value(item, old[at], f"{name}[{at}]") for at, item in enumerate(content)]
            return SEQUENCES[kind](items)
        if kind in MAPPINGS:
            return self._mapping(kind, content, fresh, name)
        if kind in ("scalar", "generator", "random", "round"):
            return _single(kind, packed, fresh, name)
        return self._object(kind, packed, fresh, name)

    def _array(self, packed: dict[str, Any], fresh: Any) -> Any:
        name, shape = packed["array"], tuple(packed["shape"])
        place = fresh.detach() if hasattr(fresh, "detach") else fresh
        if name in self._made:
            return self._made[name]
        values = self._arrays[name]
        of_numpy = packed["of"] == "numpy"
        made = values.copy() if of_numpy else native(values, self._like)
        made = made.reshape(shape)
        fits = hasattr(fresh, "shape") and isinstance(fresh, np.ndarray) == of_numpy
        if (
            fits
            and tuple(fresh.shape) == shape
            and fresh.dtype == made.dtype
            and id(fresh) not in self._filled
        ):
            place[...] = made
            made = self._filled[id(fresh)] = fresh
        self._made[name] = made
        return made

    def _mapping(self, kind: str, pairs: list[Any], fresh: Any, name: str) -> Any:
        made = fresh if isinstance(fresh, dict) else MAPPINGS[kind]()
        old = dict(made)
        made.clear()
        for packed_key, item in pairs:
            key = self.value(packed_key, None, f"{name} key")
            made[key] = self.value(item, old.get(key), f"{name}[{key!r}]")
        return made

    def _object(self, kind: str, packed: dict[str, Any], fresh: Any, name: str) -> Any:
        if kind == "state" and hasattr(fresh, "set_state"):
            fresh.set_state(self.value(packed[kind], None, name))
            return fresh
        if kind == "state_dict" and hasattr(fresh, "load_state_dict"):
            fresh.load_state_dict(self.value(packed[kind], None, name))
            return fresh
        expected = {"kept": packed[kind], "object": packed.get("class")}.get(kind, "object with that state")
        if not _stands_for(fresh, str(expected)):
            raise StorageError(
                f"the checkpoint's {name} is a {expected}, but here stands {fresh!r}: resume with the same "
                "classes, and make such objects in `start`"
            )
        if kind == "object":
            self.attributes(packed[kind], fresh, name)
        return fresh


def _standing(value: Any) -> str:
    """The name of the class of what is made anew; of an executor whatever the world it computes in."""
    return first_class_name(type(value.inner if isinstance(value, DelayedExecutor) else value))


def _stands_for(fresh: Any, name: str) -> bool:
    """True if what stands here is what a checkpoint names: on Ray and in simulations that is not one class.

    A simulation's checkpoints once named the class by which its executors take virtual time.
    """
    if name in (type(fresh).__name__, first_class_name(type(fresh)), _standing(fresh)):
        return True
    if isinstance(fresh, Executor):
        return name == DelayedExecutor.__name__
    return any(isinstance(fresh, kind) and name.endswith(kind.__name__) for kind in OF_A_WORLD)


def host_values(array: Any, name: str) -> Array:
    """An array's values (n,) in host memory: a view where they lie there, a copy from a device."""
    if isinstance(array, np.ndarray):
        flat = np.ascontiguousarray(array).reshape(-1)
    else:
        flat = host_copy(array) if on_device(array) else host_view(array.contiguous())
    if flat.dtype.hasobject:
        raise ConfigurationError(f"{name} is an array of objects, which a checkpoint cannot keep")
    return flat


def _single(kind: str, packed: dict[str, Any], fresh: Any, name: str) -> Any:
    content = packed[kind]
    if kind == "scalar":
        return np.dtype(packed["dtype"]).type(content)
    if kind == "generator":
        return _generator(content, fresh, name)
    if kind == "round":
        if isinstance(fresh, Communicator):
            fresh.round = content
        return fresh
    fresh = fresh if isinstance(fresh, random.Random) else random.Random()
    fresh.setstate((content[0], tuple(content[1]), content[2]))
    return fresh


def _generator(state: dict[str, Any], fresh: Any, name: str) -> np.random.Generator:
    kind = getattr(np.random, str(state["bit_generator"]), None)
    if kind is None:
        raise StorageError(f"the checkpoint's {name} is a {state['bit_generator']}, which NumPy lacks here")
    made = fresh if isinstance(fresh, np.random.Generator) else np.random.Generator(kind(0))
    if type(made.bit_generator) is not kind:
        made = np.random.Generator(kind(0))
    made.bit_generator.state = state
    return made


def _plain(value: Any) -> Any:
    """A bit generator's state with lists for its arrays."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value


def _is_made_anew(value: Any) -> bool:
    parameters = getattr(type(value), "__dataclass_params__", None)
    constant = isinstance(value, MADE_ANEW) or type(value).__name__ in ("dtype", "device")  # PyTorch's
    if constant or (parameters is not None and parameters.frozen):
        return True
    return type(value).__module__.startswith("d5ray.") and not isinstance(value, STATEFUL)


def _of_a_library(value: Any) -> bool:
    """True if the value's class is Python's own, so that its attributes are not its state."""
    return type(value).__module__.partition(".")[0] in sys.stdlib_module_names
