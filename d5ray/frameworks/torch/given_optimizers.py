"""The forms in which an experiment is given its optimizer: d5ray's own, PyTorch's, Keras's and Optax's"""

import functools
import inspect
from typing import Any, Final

from d5ray.errors import ConfigurationError
from d5ray.frameworks.native_optimizers import KerasOptimizer, OptaxOptimizer, TorchOptimizer
from d5ray.networks.executors.framework_of_model import packages_of
from d5ray.training.optimizers.optimizer import Optimizer

SCHEDULES: Final = {  # of `torch.optim.lr_scheduler`, and what does the same here
    "StepLR": "Piecewise(0.1, {30: 0.01})",
    "MultiStepLR": "Piecewise(0.1, {30: 0.01, 60: 0.001})",
    "CosineAnnealingLR": "Cosine(...)",
    "OneCycleLR": "OneCycle(...)",
    "PolynomialLR": "Polynomial(...)",
    "LinearLR": "WarmUp(...)",
    "LambdaLR": "Computed(function)",
}
HOOKS: Final = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")


def as_optimizer(given: Any, model: Any = None) -> Any:
    """The optimizer that an experiment is given in one of its forms; what is none is left as it is.

    An `Optimizer`; an optimizer of PyTorch or Keras: a class, a `functools.partial` of one, or an instance,
    whose settings count, and which must hold all parameters of a model that is a module; a function of the
    parameters that gives one of PyTorch's; a `functools.partial` of a function of Optax's. Raises
    `ConfigurationError` for a scheduler of PyTorch's, for an optimizer of several groups of parameters, with
    hooks, a scheduler or a state, and for one whose settings nobody can read, such as one that Optax has
    made.
    """
    if isinstance(given, Optimizer):
        return given
    if isinstance(given, functools.partial) and (isinstance(given.func, type) or _is_optax(given.func)):
        if given.args:
            example = "optax.adamw, learning_rate" if _is_optax(given.func) else "torch.optim.AdamW, lr"
            raise ConfigurationError(
                f"optimizer is {given!r}, with settings by position: name them, as in "
                f"functools.partial({example}=0.001)"
            )
        if _is_optax(given.func):
            return OptaxOptimizer(given.func, **given.keywords)
        kind: Any = given.func
        return _of_class(kind, given.keywords)
    if isinstance(given, type):
        return _of_class(given, {})
    if _is_optax(given):
        return OptaxOptimizer(given)
    packages = packages_of(given)  # also of a class of one's own that is derived from theirs
    if "optax" in packages:
        raise ConfigurationError(
            "optimizer is a gradient transformation that Optax has made, whose settings nobody can read: "
            "give functools.partial(optax.adamw, learning_rate=0.001), or OptaxOptimizer(function, …) of a "
            "function that gives it"
        )
    if "torch" in packages and hasattr(given, "param_groups"):
        return _of_torch(given, model)
    if "torch" in packages and hasattr(given, "get_last_lr"):
        raise _scheduler(f"PyTorch's {type(given).__name__}")
    if inspect.isfunction(given):  # of [(name, tensor), ...], which optimizers of PyTorch take as parameters
        return TorchOptimizer(given)
    if "keras" in packages and hasattr(given, "get_config"):
        return _of_keras(given)
    return given


def _of_class(kind: type, settings: dict[str, Any]) -> Any:
    """The optimizer of a class with these settings."""
    packages = packages_of(kind)
    if "torch" in packages and hasattr(kind, "get_last_lr"):
        raise _scheduler(f"PyTorch's {kind.__name__}")
    if "torch" in packages:
        return TorchOptimizer(kind, **settings)
    if "keras" in packages:
        return KerasOptimizer(kind, **settings)
    return kind


def _scheduler(kind: str) -> ConfigurationError:
    return ConfigurationError(
        f"optimizer is {kind}, which changes the rate of an optimizer that it holds: give the "
        "optimizer, with a schedule for its rate, such as Scheduled(SGD(0.1), learning_rate="
        f"{SCHEDULES.get(kind.rpartition(' ')[2], 'Computed(function)')}) of d5ray.optimizers and "
        "d5ray.schedules"
    )


def _of_torch(given: Any, model: Any) -> TorchOptimizer:
    group, kind = given.param_groups[0], type(given)
    if any("initial_lr" in each for each in given.param_groups):
        raise _scheduler(f"a {kind.__name__} with a scheduler of PyTorch's")
    if refused := _not_taken(given, model):
        what, remedy = refused
        raise ConfigurationError(
            f"optimizer is a {kind.__name__} {what}, and agents have models of their own: {remedy}"
        )
    taken = inspect.signature(kind).parameters
    settings = {name: value for name, value in group.items() if name in taken and name != "params"}
    return TorchOptimizer(kind, **{name: each for name, each in settings.items() if each is not None})


def _not_taken(given: Any, model: Any) -> tuple[str, str] | None:
    """What an optimizer of PyTorch's has that its settings do not say, and what to do about it."""
    group, *others = given.param_groups
    if others:
        remedy = "give TorchOptimizer a function of [(name, tensor), ...] that makes the groups"
        return f"of {len(given.param_groups)} groups of parameters", remedy
    if any(getattr(given, name, None) for name in HOOKS):
        return "with hooks", "do what they do in the step of a class of your own that is derived from it"
    if given.state:
        return "that has done steps", "give one that has not, or a functools.partial of its class"
    held = {id(each) for each in group["params"]}
    for name, tensor in model.named_parameters() if hasattr(model, "named_parameters") else ():
        if tensor.requires_grad and id(tensor) not in held:
            remedy = "call requires_grad_(False) on what is not to be trained, or give it all parameters"
            return f"that does not hold the model's parameter {name!r}", remedy
    taken = inspect.signature(type(given)).parameters
    unknown = [str(each) for name, each in taken.items() if name not in group and name != "params"]
    if unknown:
        remedy = f"give functools.partial({type(given).__name__}, …)"
        return f"whose param_groups do not say its {', '.join(unknown)}", remedy
    return None


def _of_keras(given: Any) -> KerasOptimizer:
    config = {name: value for name, value in given.get_config().items() if value is not None}
    config.pop("name", None)
    if getattr(given, "_exclude_from_weight_decay", None):
        raise ConfigurationError(
            f"optimizer is a {type(given).__name__} that excludes variables from weight decay, and agents "
            "have models of their own: exclude by names, exclude_from_weight_decay(var_names=[…])"
        )
    if (pattern := getattr(given, "_exclude_from_weight_decay_pattern", None)) is not None:
        config["exclude_from_weight_decay"] = pattern.pattern
    return KerasOptimizer(type(given), **config)


def _is_optax(given: Any) -> bool:
    """True for a function of Optax's."""
    return inspect.isfunction(given) and given.__module__.partition(".")[0] == "optax"
