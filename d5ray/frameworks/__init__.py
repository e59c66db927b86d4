"""One adapter a framework; a framework is imported when something of it is asked for, not before."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from d5ray.errors import ConfigurationError, nearest

if TYPE_CHECKING:
    from d5ray.networks.executors.executor import Executor

FRAMEWORKS = ("numpy", "torch", "tensorflow", "cupy", "jax")


def executor_by_name(name: str) -> "Callable[..., Executor]":
    """The function that makes a model's executor for agents under this framework. Imports no framework.

    Raises `ConfigurationError` with the nearest name if there is no such framework.
    """
    if name not in FRAMEWORKS:
        raise ConfigurationError(f"executor is {name!r}, which is no framework: {nearest(name, FRAMEWORKS)}")
    made: Callable[..., Executor] = import_module(f"d5ray.frameworks.{name}").from_model
    return made


def framework_name(make: object) -> str:
    """The name of the framework whose adapter has this function; "" for a function of the user's own.

    >>> framework_name(executor_by_name("numpy"))
    'numpy'
    """
    module = f"{getattr(make, '__module__', '')}."
    return next((name for name in FRAMEWORKS if module.startswith(f"{__name__}.{name}.")), "")
