"""The keys of a recipe as values of an experiment: components are made, with their arguments and leaves"""

import copy
import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any

from d5ray.distributed.group.late_agents import Late
from d5ray.distributed.model_parallelism import ModelParallelism
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.parameter_server.servers import Servers
from d5ray.distributed.topologies.topology import Topology
from d5ray.errors import ConfigurationError, UnknownArgument, nearest
from d5ray.metrics.statistics.sequential_stopping import SequentialStopping
from d5ray.operators.loss import Loss
from d5ray.recipes.engine.parsing.texts import called, written
from d5ray.training.events.event import Event
from d5ray.training.optimizers.native import NativeOptimizer
from d5ray.training.optimizers.optimizer import Optimizer
from d5ray.training.samplers.sampler import Sampler
from d5ray.training.schedules import Schedule
from d5ray.training.stragglers import StragglerModel
from d5ray.training.transformations.transformation import Transformation

# Keys whose value is a class (or its name) that is made with `<key>_args` and `<key>_kwargs`.
COMPONENTS: dict[str, type] = {
    "optimizer": Optimizer,
    "distributed": DistributedOptimizer,
    "topology": Topology,
    "mesh": ModelParallelism,
    "train_sampler": Sampler,
    "loss": Loss,
    "servers": Servers,
    "slow": StragglerModel,
    "late": Late,
    "events": Event,
    "batch_size": Schedule,
    "pairs": SequentialStopping,
    "transformations": Transformation,
}
# Keys whose arguments are passed on, since the agents use them.
PASSED_ON = ("model", "dataset", "executor")


def allowed_keys(fields: set[str]) -> set[str]:
    """The keys that a recipe over these fields may have."""
    made = {f"{key}_{what}" for key in COMPONENTS if key in fields for what in ("args", "kwargs")}
    return fields | made


def is_known(key: object, known: set[str]) -> bool:
    """True if a recipe may have this key: one of the known ones, or a leaf such as `optimizer.momentum`."""
    if not isinstance(key, str) or "." not in key:
        return key in known
    component = key.partition(".")[0]
    return component in known and component in (*COMPONENTS, *PASSED_ON)


def owner(key: str) -> str | None:
    """The component that a key such as `optimizer_args` or `optimizer.learning_rate` belongs to."""
    if "." in key:
        return key.partition(".")[0]
    for ending in ("_args", "_kwargs"):
        component = key.removesuffix(ending)
        if component != key and (component in COMPONENTS or component in PASSED_ON):
            return component
    return None


Groups = dict[str, dict[str, Any]]


def grouped(keys: Mapping[str, Any]) -> Groups:
    """The keys by what they are about: `optimizer`, `optimizer_args`, `optimizer.momentum` in one group."""
    groups: Groups = {}
    for key, value in keys.items():
        groups.setdefault(owner(key) or key, {})[key] = value
    return groups


def built(keys: Mapping[str, Any]) -> dict[str, Any]:
    """The values of an experiment: every component made, with its leaves; `keys` stay as they are."""
    return values(grouped(keys))


def values(groups: Groups) -> dict[str, Any]:
    """The values of an experiment, of keys that are grouped already."""
    made: dict[str, Any] = {}
    for name, own in groups.items():
        whole = {key: value for key, value in own.items() if "." not in key}
        leaves = {key.partition(".")[2]: value for key, value in own.items() if "." in key}
        if name in PASSED_ON and leaves:
            whole[f"{name}_kwargs"] = {**whole.get(f"{name}_kwargs", {}), **leaves}
        elif leaves and (name not in COMPONENTS or whole.get(name) is None):
            raise ConfigurationError(
                f"{next(key for key in own if '.' in key)}: there is no component {name!r}: "
                f"{nearest(name, [*COMPONENTS, *PASSED_ON])}"
            )
        elif name in COMPONENTS:
            args, kwargs = whole.get(f"{name}_args", ()), whole.get(f"{name}_kwargs", {})
            if name in own:
                whole = {name: component(name, COMPONENTS[name], own[name], args, kwargs, leaves)}
            elif not (args or kwargs):
                whole = {}
        made |= whole
    return made


def component(key: str, kind: type, given: Any, args: Any, kwargs: Any, leaves: Mapping[str, Any]) -> Any:
    """The component that a class, a name or an instance stands for, with other values of some leaves."""
    made, leaves = written(key, kind, given), dict(leaves)
    if not isinstance(args, (tuple, list)):
        raise ConfigurationError(f"{key}_args is {args!r}: it must be a tuple, such as ({args!r},)")
    if not isinstance(kwargs, Mapping):
        raise ConfigurationError(f"{key}_kwargs is {kwargs!r}: it must be a dictionary")
    if inspect.isclass(made):
        taken = {leaf: leaves.pop(leaf) for leaf in _taken(made, args, kwargs, leaves)}
        try:
            made = made(*args, **kwargs, **taken)
        except (TypeError, UnknownArgument) as error:
            raise ConfigurationError(
                f"{key}: {made.__name__} does not take these arguments: {error}; write "
                f"{called(key, made)}, or {key}_args"
            ) from error
    elif args or kwargs:
        raise ConfigurationError(
            f"{key} is the instance {made!r}: put its arguments there, not in {key}_args"
        )
    for leaf, value in leaves.items():
        made = _changed(key, made, leaf, value)
    return made


def _taken(made: type, args: Any, kwargs: Any, leaves: Iterable[str]) -> list[str]:
    """The leaves that a class takes when it is made, and that its arguments do not give."""
    try:
        signature = inspect.signature(made)
        given = signature.bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):  # what is wrong with the arguments is said when they are used
        return []
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = {name for name, parameter in signature.parameters.items() if parameter.kind in by_name}
    return [leaf for leaf in leaves if leaf in named and leaf not in given]


def _changed(name: str, made: Any, leaf: str, value: Any) -> Any:
    """The component with another value of one of its attributes; the recipe's own instance stays as it is."""
    known = hyperparameters(made, COMPONENTS[name])
    if leaf not in known:
        raise ConfigurationError(f"{name}.{leaf}: {made!r} has no {leaf!r}: {nearest(leaf, known)}")
    if isinstance(made, NativeOptimizer):
        return made.with_values(**{leaf: value})
    if dataclasses.is_dataclass(made) and not isinstance(made, type):
        return dataclasses.replace(made, **{leaf: value})
    made = copy.copy(made)
    setattr(made, leaf, value)
    return made


def hyperparameters(made: Any, kind: type) -> list[str]:
    """The settings of a component: a dataclass's fields, or the public data of object and class."""
    if isinstance(made, NativeOptimizer):
        return list(made.hyperparameters)
    if dataclasses.is_dataclass(made):
        return [field.name for field in dataclasses.fields(made)]
    own = {} if inspect.isclass(made) else getattr(made, "__dict__", {})
    classes = made.__mro__ if inspect.isclass(made) else type(made).__mro__
    data = {
        name
        for part in takewhile(lambda part: part is not kind, classes)
        for name, value in vars(part).items()
        if not callable(value) and not hasattr(value, "__get__")
    }
    return sorted(name for name in data | set(own) if not name.startswith("_"))
