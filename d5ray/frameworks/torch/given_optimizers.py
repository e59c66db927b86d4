"""The forms in which an experiment is given its optimizer: d5ray's own, PyTorch's, Keras's and Optax's"""

import functools
import inspect
from typing import Any, Final

from d5ray.errors import ConfigurationError
from d5ray.frameworks.jax.optimizer import OptaxOptimizer
from d5ray.frameworks.tensorflow.optimizer import KerasOptimizer
from d5ray.frameworks.torch.optimizer import TorchOptimizer
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


def as_optimizer(given: Any) -> Any:
    """The optimizer that an experiment is given in one of its forms; what is none is left as it is.

    An `Optimizer`; an optimizer of PyTorch or Keras: a class, a `functools.partial` of one, or an instance,
    whose settings count and whose parameters do not: those are the model's; a function of the parameters that
    gives one of PyTorch's; a `functools.partial` of a function of Optax's. Raises `ConfigurationError` for a
    scheduler of PyTorch's, for an optimizer of several groups of parameters, and for one that Optax has made,
    whose settings nobody can read.
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
        return _of_torch(given)
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


def _of_torch(given: Any) -> TorchOptimizer:
    if any("initial_lr" in group for group in given.param_groups):
        raise _scheduler(f"a {type(given).__name__} with a scheduler of PyTorch's")
    if len(given.param_groups) > 1:
        raise ConfigurationError(
            f"optimizer is a {type(given).__name__} of {len(given.param_groups)} groups of parameters, and "
            "agents have models of their own: give TorchOptimizer a function of [(name, tensor), ...] that "
            "makes the groups"
        )
    taken = inspect.signature(type(given)).parameters
    (group,) = given.param_groups
    settings = {name: value for name, value in group.items() if name in taken and name != "params"}
    return TorchOptimizer(type(given), **{name: each for name, each in settings.items() if each is not None})


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
