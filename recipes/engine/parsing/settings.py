"""Settings: the keys of a recipe become values of an experiment, with components, arguments, overrides."""

import ast
import copy
import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any

from d5ray.distributed.group.late_agents import Late
from d5ray.distributed.mesh.mesh import Mesh
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.parameter_server.servers import Servers
from d5ray.distributed.topologies.topology import Topology
from d5ray.errors import ConfigurationError, nearest
from d5ray.metrics.statistics.sequential_stopping import Looks
from d5ray.names import namespaces
from d5ray.operators.loss import Loss
from d5ray.training.events.event import Event
from d5ray.training.optimizers.native import NativeOptimizer
from d5ray.training.optimizers.optimizer import Optimizer
from d5ray.training.samplers import Sampler
from d5ray.training.schedules import Schedule
from d5ray.training.stragglers import StragglerModel
from d5ray.training.transformations import Transformation

# Keys whose value is a class (or its name) that is made with `<key>_args` and `<key>_kwargs`.
COMPONENTS: dict[str, type] = {
    "optimizer": Optimizer,
    "distributed": DistributedOptimizer,
    "topology": Topology,
    "mesh": Mesh,
    "train_sampler": Sampler,
    "loss": Loss,
    "servers": Servers,
    "slow": StragglerModel,
    "late": Late,
    "events": Event,
    "batch_size": Schedule,
    "pairs": Looks,
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


def built(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The values of an experiment: every component made, dotted keys applied; `settings` stays as it is."""
    plain = {key: value for key, value in settings.items() if "." not in key}
    values = {key: value for key, value in plain.items() if owner(key) not in COMPONENTS}
    leaves = {key: value for key, value in settings.items() if "." in key}
    for key, kind in COMPONENTS.items():
        if key in values:
            args, kwargs = plain.get(f"{key}_args", ()), plain.get(f"{key}_kwargs", {})
            own = {leaf.partition(".")[2]: leaf for leaf in leaves if leaf.partition(".")[0] == key}
            taken = _arguments(written(key, kind, values[key]), args, kwargs, own)
            kwargs = {**kwargs, **{name: leaves.pop(own[name]) for name in taken}} if taken else kwargs
            values[key] = component(key, kind, values[key], args, kwargs)
    for key, value in leaves.items():
        _apply(values, key, value)
    return values


def _arguments(made: Any, args: Any, kwargs: Any, leaves: Iterable[str]) -> list[str]:
    """The leaves that a class takes when it is made, and that its arguments do not give."""
    if not inspect.isclass(made):
        return []
    try:
        signature = inspect.signature(made)
        given = signature.bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):  # what is wrong with the arguments is said when they are used
        return []
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = {name for name, parameter in signature.parameters.items() if parameter.kind in by_name}
    return [leaf for leaf in leaves if leaf in named and leaf not in given]


def component(key: str, kind: type, given: Any, args: Any, kwargs: Any) -> Any:
    """The component that a class, a name or an instance stands for."""
    if not isinstance(args, (tuple, list)):
        raise ConfigurationError(f"{key}_args is {args!r}: it must be a tuple, such as ({args!r},)")
    if not isinstance(kwargs, Mapping):
        raise ConfigurationError(f"{key}_kwargs is {kwargs!r}: it must be a dictionary")
    made = written(key, kind, given)
    if inspect.isclass(made):
        try:
            made = made(*args, **kwargs)
        except TypeError as error:
            raise ConfigurationError(
                f"{key}: {made.__name__} does not take these arguments: {error}"
            ) from error
    elif args or kwargs:
        raise ConfigurationError(
            f"{key} is the instance {made!r}: put its arguments there, not in {key}_args"
        )
    return made


def parsed(text: str) -> tuple[str, Any]:
    """`key=value` of the command line; the value is Python data, or the text itself.

    >>> parsed("optimizer_args=(0.1, 0.9)")
    ('optimizer_args', (0.1, 0.9))
    >>> parsed("model=lenet")
    ('model', 'lenet')
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigurationError(f"--set {text!r}: write it as key=value, such as --set agents=4")
    try:
        return key.strip(), ast.literal_eval(value.strip())
    except (ValueError, SyntaxError):
        return key.strip(), value.strip()


def _apply(values: dict[str, Any], key: str, value: Any) -> None:
    """`optimizer.learning_rate = 0.01`: one attribute of a component, or one argument that is passed on."""
    name, _, attribute = key.partition(".")
    if name in PASSED_ON:
        values[f"{name}_kwargs"] = {**values.get(f"{name}_kwargs", {}), attribute: value}
        return
    made = values.get(name)
    if name not in COMPONENTS or made is None:
        raise ConfigurationError(
            f"{key}: there is no component {name!r}: {nearest(name, [*COMPONENTS, *PASSED_ON])}"
        )
    known = hyperparameters(made, COMPONENTS[name])
    if attribute not in known:
        raise ConfigurationError(f"{key}: {made!r} has no {attribute!r}: {nearest(attribute, known)}")
    if isinstance(made, NativeOptimizer):
        values[name] = made.with_values(**{attribute: value})
        return
    if dataclasses.is_dataclass(made) and not isinstance(made, type):
        values[name] = dataclasses.replace(made, **{attribute: value})
        return
    values[name] = copy.copy(made)  # the recipe's own instance stays as it is
    setattr(values[name], attribute, value)


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


def written(key: str, kind: type, text: Any) -> Any:
    """The value of a text: a class of d5ray by name, or a call of one, `CompressedSGD(QSGD(bits=4))`.

    What is no text is itself.
    """
    if not isinstance(text, str):
        return text
    if "(" not in text:
        return named(key, kind, text)
    try:
        made = _evaluated(key, ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{key}={text} cannot be made: {error}; write a name of d5ray with its arguments, such as "
            "topology=Torus(2, 3)"
        ) from error
    for part in made if isinstance(made, tuple) else (made,):
        if not isinstance(part, kind):
            verb = "has" if isinstance(made, tuple) else "is"
            raise ConfigurationError(
                f"{key}={text} {verb} a {type(part).__name__}: it must be a {kind.__name__}"
            )
    return made


def _evaluated(key: str, node: ast.expr) -> Any:
    """Calls of d5ray's classes, and plain values; nothing else is run."""
    if isinstance(node, ast.Call) and _is_name(node.func):
        made = named(key, object, ast.unparse(node.func))
        keywords = {word.arg: _evaluated(key, word.value) for word in node.keywords if word.arg}
        return made(*(_evaluated(key, value) for value in node.args), **keywords)
    if _is_name(node):
        return named(key, object, ast.unparse(node))
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {ast.literal_eval(name or node): _evaluated(key, value) for name, value in pairs}
    if isinstance(node, ast.Tuple):
        return tuple(_evaluated(key, value) for value in node.elts)
    return ast.literal_eval(node)


def _is_name(node: ast.expr) -> bool:
    """Whether this is `Ring` or `d5.topologies.Ring`."""
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and _is_name(node.value))


def named(key: str, kind: type, name: str) -> Any:
    """The class of d5ray that a recipe names, in any case of letters; its module alone is imported."""
    if found := _classes(kind, namespaces.spelled(name)):
        return found[0]
    what = "class of d5ray" if kind is object else kind.__name__
    raise ConfigurationError(f"{key}: there is no {what} named {name!r}: {_near(kind, name)}")


def _classes(kind: type, candidates: Iterable[str]) -> list[Any]:
    """Those of the public names that are classes of this kind, and not abstract."""
    things = map(namespaces.public, candidates)
    return [
        thing
        for thing in things
        if inspect.isclass(thing) and issubclass(thing, kind) and not inspect.isabstract(thing)
    ]


def _near(kind: type, name: str) -> str:
    """The end of an error about an unknown class: the nearest of the kind, or all of it, if those are few."""
    if near := _classes(kind, namespaces.similar(name)):
        return namespaces.suggested(thing.__name__ for thing in near)
    if kind is object:
        return "dir(d5ray) lists the namespaces, dir(d5ray.topologies) the names of one"
    return f"known: {', '.join(sorted(thing.__name__ for thing in _classes(kind, namespaces.places())))}"
