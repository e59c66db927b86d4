"""Frameworks of models, found by their class; a framework is asked by name, when it is needed"""

import functools
from importlib import import_module
from typing import Any

from d5ray.errors import ConfigurationError

ADAPTERS = {"torch": "d5ray.frameworks.torch", "keras": "d5ray.frameworks.tensorflow"}


def framework_of(model: Any) -> Any:
    """The adapter of the framework in which a model is written.

    Raises `ConfigurationError` for what is no model of PyTorch or Keras.
    """
    bases = packages_of(model)
    for package, adapter in ADAPTERS.items():
        if package in bases:
            return import_module(adapter)
    raise ConfigurationError(
        f"{model!r} is no model of PyTorch (an nn.Module) or Keras: give one, or read an ONNX file "
        "(from_onnx)"
    )


def packages_of(model: Any) -> frozenset[str]:
    """The packages in which the class of a model is written, and those that it derives from.

    model: an object, a class, or a partial function of one.

    >>> "collections" in packages_of(type("Own", (__import__("collections").Counter,), {}))
    True
    """
    while isinstance(model, functools.partial):
        model = model.func
    kind = model if isinstance(model, type) else type(model)
    return frozenset(each.__module__.partition(".")[0] for each in kind.__mro__)
