"""Fields of data classes: those that came later, and those that are a part's but named in its place"""

import dataclasses
import functools
import inspect
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

from d5ray.errors import ConfigurationError
from d5ray.names.namespaces import shown
from d5ray.names.renamed import RenamedAttribute

LATER: Final[Mapping[str, Any]] = {"later": True}  # metadata of a field that its class did not always have
PART: Final[Mapping[str, Any]] = {"part": True}  # of one that holds an object made by its `default_factory`
T = TypeVar("T")


def fields_of(kind: Any) -> Iterator[dataclasses.Field[Any]]:
    """The fields of a data class, and in the place of each part those of the part."""
    for each in dataclasses.fields(kind):
        yield from fields_of(each.default_factory) if each.metadata == PART else (each,)


def values_of_fields(value: Any) -> dict[str, Any]:
    """The values of `fields_of` by name, but for defaults of fields that came later.

    So what was described before a field came, or went into a part, is described, and hashed, as it was.
    """
    found: dict[str, Any] = {}
    for each in dataclasses.fields(value):
        own = getattr(value, each.name)
        if each.metadata == PART:
            found |= values_of_fields(own)
        elif each.metadata != LATER or own != each.default:
            found[each.name] = own
    return found


def gathered(kind: Any, values: Mapping[str, Any], parts: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Values by the names of `fields_of` as arguments of the data class: those of a part are put into it.

    parts: by name, those that keep their other values; by default the others are defaults. Raises
    `ConfigurationError` where a part is given, too.
    """
    found = dict(values)
    for part, made in _parts(kind).items():
        own = {each.name: found.pop(each.name) for each in dataclasses.fields(made) if each.name in found}
        if own and part in found:
            said = ", ".join(own)
            raise ConfigurationError(f"{said} is given beside {part}: give {part} alone, with {said} in it")
        if own:
            found[part] = dataclasses.replace(made() if parts is None else parts[part], **own)
    return found


def with_former_names(kind: type[T]) -> type[T]:
    """The data class, which takes and has values of its parts as its own for one release, with a warning.

    `dataclasses.replace` gives all fields, and then such a value is another one of its part.
    """
    renamed: Any = kind
    made, names = renamed.__init__, {each.name for each in dataclasses.fields(renamed)}
    parts = _parts(kind)
    places = {each.name: part for part in parts for each in dataclasses.fields(parts[part])}

    @functools.wraps(made)
    def init(self: T, *args: Any, **given: Any) -> None:
        replaces = given.keys() > names
        former = [name for name in given if name in places]
        for name in former:
            now = f"{places[name]}={shown(parts[places[name]].__name__)}({name}={given[name]!r})"
            warnings.warn(
                f"{name}={given[name]!r} of {kind.__name__} is {now} now, and the old name goes with the "
                "next release",
                DeprecationWarning,
                stacklevel=3 if replaces else 2,
            )
        before = {part: given.pop(part) for part in {places[name] for name in former}} if replaces else None
        made(self, *args, **gathered(kind, given, before))

    renamed.__init__ = init
    signature = inspect.signature(made)
    renamed.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])
    for name, part in places.items():
        attribute = RenamedAttribute(f"{part}.{name}")
        attribute.__set_name__(kind, name)
        setattr(kind, name, attribute)
    return kind


def _parts(kind: Any) -> dict[str, Any]:
    """The classes of the parts, by the names of their fields."""
    return {each.name: each.default_factory for each in dataclasses.fields(kind) if each.metadata == PART}
