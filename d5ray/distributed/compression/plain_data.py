"""A compressor as plain data, by which a parameter server knows what pushes are compressed with"""

from collections.abc import Iterable
from dataclasses import fields
from importlib import import_module
from typing import Any

from d5ray.distributed.compression.compressor import Compressor
from d5ray.errors import ConfigurationError
from d5ray.identity.canonical import digest

PACKAGE = "d5ray.distributed.compression"
MODULES = ("chain", "precision", "random_k", "signs", "stochastic", "threshold", "top_k")


def described(compressor: Compressor) -> dict[str, Any]:
    """JSON data that `found` knows: one of d5ray's own by its class and fields, another by its hash.

    >>> from d5ray.distributed.compression.top_k import TopK
    >>> described(TopK(0.01))
    {'module': 'top_k', 'class': 'TopK', 'fields': {'k': 0.01, 'bucket': None}}
    """
    kind = type(compressor)
    package, _, module = kind.__module__.rpartition(".")
    if package != PACKAGE or module not in MODULES:
        return {"class": kind.__qualname__, "hash": digest(compressor)}
    values = {field.name: getattr(compressor, field.name) for field in fields(compressor)}  # type: ignore[arg-type]
    nested = {name: described(v) if isinstance(v, Compressor) else v for name, v in values.items()}
    return {"module": module, "class": kind.__name__, "fields": nested}


def found(description: Any, known: Iterable[Compressor]) -> Compressor:
    """The compressor that was described: made anew if it is d5ray's own, else one of those that are known.

    Raises `ConfigurationError` for what is no description, and for one of an unknown compressor.
    """
    match description:
        case {"module": str(module), "class": str(name), "fields": dict(values)} if module in MODULES:
            kind = getattr(import_module(f"{PACKAGE}.{module}"), name, None)
            if isinstance(kind, type) and issubclass(kind, Compressor) and kind.__module__.endswith(module):
                made = {k: found(v, known) if isinstance(v, dict) else v for k, v in values.items()}
                try:
                    compressor: Compressor = kind(**made)
                except TypeError as error:
                    raise ConfigurationError(f"{name} cannot be made: {error}") from None
                return compressor
        case {"class": str(name), "hash": str(hashed)}:
            for each in known:
                if digest(each) == hashed:
                    return each
            raise ConfigurationError(
                f"the parameter servers do not know {name}, which an agent compresses with: keep the "
                "compressor as an attribute of the distributed optimizer, set in its class or in __init__: "
                "then they get it with the experiment"
            )
    raise ConfigurationError(f"this describes no compressor: {str(description)[:200]}")
