"""Criteria out of the table `runs`: those on metrics of d5ray, made again from what `described` says"""

import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from d5ray.errors import StorageError
from d5ray.identity import checkout
from d5ray.metrics import definitions
from d5ray.metrics.definitions.price import PriceTable
from d5ray.metrics.judge.criteria import Criterion, Metric
from d5ray.names.kits import brought


def criterion_of(described: Mapping[str, Any]) -> Criterion | None:
    """The criterion that is described; None for a metric that is not d5ray's own, or see `is_away`.

    Raises `StorageError` where it describes none.
    """
    try:
        kinds = known_metrics().get(described["metric"], ())
        given = {name: _again(value) for name, value in described["arguments"].items()}
        for kind in kinds:
            if set(given) == set(inspect.signature(kind).parameters):
                return Criterion(kind(**given), described["relation"], described["target"])
    except Exception as error:  # what made-up arguments raise in a metric is anything
        raise StorageError(f"{described!r} describes no criterion: {error}") from error
    return None


def is_away(described: Mapping[str, Any]) -> bool:
    """True if the metric is one of d5ray's benchmarks, which are not there without a checkout."""
    module = described.get("module")
    ours = isinstance(module, str) and module.startswith(f"{checkout.PACKAGE}.")
    return ours and checkout.benchmarks() is None


@cache
def known_metrics() -> dict[str, tuple[type[Metric], ...]]:
    """Every metric that d5ray and its kits have, by name; in a checkout also those of its benchmarks."""
    places = (definitions.__name__, *brought("modules of metrics").values())
    for package in map(import_module, places):
        for module in pkgutil.iter_modules(getattr(package, "__path__", ()), f"{package.__name__}."):
            if not module.ispkg:
                import_module(module.name)
    benchmarks = {module.__name__ for module in checkout.parts("metrics")}
    found: dict[str, tuple[type[Metric], ...]] = {}
    base: Any = Metric  # which is abstract
    for kind in _kinds(base):
        ours = kind.__module__.startswith("d5ray.") or kind.__module__ in benchmarks
        if ours and not inspect.isabstract(kind):
            found[kind.name] = (*found.get(kind.name, ()), kind)
    return found


def _kinds(base: type[Metric]) -> Iterator[type[Metric]]:
    for kind in base.__subclasses__():
        if isinstance(getattr(kind, "name", None), str):
            yield kind
        yield from _kinds(kind)


def _again(value: Any) -> Any:
    """The argument of which this is the canonical form: JSON has lists where metrics have tuples."""
    if isinstance(value, dict):  # the one class that metrics take
        return PriceTable(**{name: each for name, each in value.items() if name != "class"})
    return tuple(map(_again, value)) if isinstance(value, list) else value
