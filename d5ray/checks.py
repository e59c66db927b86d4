"""Checks of the values that a user gives; they say what was found and what is expected"""

import inspect
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from numbers import Integral, Rational, Real  # with which NumPy registers its own
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from d5ray.errors import ConfigurationError, UnknownArgument, nearest
from d5ray.names import namespaces

LARGEST = 2**63 - 1  # that a column of the tables holds
MOST_RANKS = 10_000  # whose links with each other, the square of that, are looked at one by one
LONGEST_FILE_NAME = 255  # characters, by the usual file systems
LONGEST_SHOWN = 200  # characters of a value in an error


def check_count(
    name: str, value: object, low: int = 1, high: int = LARGEST, *, of: str = "", other: str = ""
) -> None:
    """Raise `ConfigurationError` unless value is an integer, of Python or of NumPy, from low to high.

    of: what it counts; other: what is allowed instead, such as "None for the whole vector".

    >>> check_count("steps", 3)
    >>> check_count("seed", 2**200, low=0)
    Traceback (most recent call last):
    d5ray.errors.ConfigurationError: seed is 1606938044258990275541962092341162602522202993782792835301376: \
it must be an integer of at least 0, 9223372036854775807 at most
    """
    if isinstance(value, (int, Integral)) and not isinstance(value, bool) and low <= int(value) <= high:
        return
    above = isinstance(value, (int, Integral)) and int(value) > high
    most = f", {high} at most" if above else ""
    what = f"an integer number of {of}, at least {low}" if of else f"an integer of at least {low}"
    instead = f", or {other}" if other else ""
    raise ConfigurationError(f"{name} is {shown(value)}: it must be {what}{most}{instead}")


def check_number(name: str, value: object, *, low: float, low_included: bool, high: float = math.inf) -> None:
    """Raise `ConfigurationError` unless value is a finite number between low and high (high excluded).

    >>> check_number("momentum", 1.5, low=0.0, low_included=True, high=1.0)
    Traceback (most recent call last):
    d5ray.errors.ConfigurationError: momentum is 1.5: it must be a number from 0 up to, but not, 1
    """
    if is_number(value) and (value > low or (low_included and value == low)) and value < high:  # type: ignore[operator]
        return
    bounds = f"from {low:g} up" if low_included else f"greater than {low:g}"
    if high != math.inf:
        bounds += f" to, but not, {high:g}" if low_included else f" and smaller than {high:g}"
    raise ConfigurationError(f"{name} is {shown(value)}: it must be a number {bounds}")


def check_rate(name: str, value: object, *, zero: bool = False) -> None:
    """Raise `ConfigurationError` unless value is a finite positive number, or zero where that is meant."""
    if callable(value) or hasattr(value, "changes") or hasattr(value, "get_last_lr"):
        raise ConfigurationError(
            f"{name} is {shown(value)}: it must be a number; one that changes is a schedule around the rule: "
            f"Scheduled(SGD(0.1), {name}=Computed(function, unit='step')), or Cosine, WarmUp, Piecewise"
        )
    check_number(name, value, low=0.0, low_included=zero)


def check_share(name: str, value: object) -> None:
    """Raise `ConfigurationError` unless value is a number from 0 up to, but not, 1."""
    check_number(name, value, low=0.0, low_included=True, high=1.0)


def is_number(value: object) -> bool:
    """True if value is a finite number of Python or NumPy; no boolean, and no integer beyond int64.

    >>> import fractions, numpy as np
    >>> is_number(np.float32(0.5)), is_number(np.int8(1)), is_number(fractions.Fraction(1, 2))
    (True, True, False)
    >>> is_number(True), is_number(math.nan), is_number(2**200)
    (False, False, False)
    """
    if isinstance(value, (int, Integral)):
        return not isinstance(value, bool) and -LARGEST <= int(value) <= LARGEST
    return isinstance(value, Real) and not isinstance(value, Rational) and math.isfinite(value)


def check_kind(name: str, value: object, kind: type | UnionType, wanted: str) -> None:
    """Raise `ConfigurationError` unless value is of this kind; `wanted` ends the sentence "it must be …"."""
    if not isinstance(value, kind):
        raise wrong_kind(name, value, wanted, kind)


def wrong_kind(
    name: str, value: object, wanted: str, kind: type | UnionType | None = None
) -> ConfigurationError:
    """The error about a value of another kind, which may be the name of a class of the kind, or the class."""
    told = ""
    parts = [kind] if isinstance(kind, type) else getattr(kind, "__args__", ())
    if isinstance(value, type) and any(issubclass(value, part) for part in parts):
        told = f"; it is a class: give an instance, {value.__name__}(…)"
    elif isinstance(value, str):
        own = [part for part in parts if part.__module__.startswith("d5ray.")]
        near = [each for part in own for each in namespaces.near(part, value)]
        told = f"; {namespaces.suggested(each.__name__ for each in near[:1])}" if near else ""
    return ConfigurationError(f"{name} is {shown(value)} ({type(value).__name__}): it must be {wanted}{told}")


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raise `ConfigurationError` unless value is one of these texts."""
    if not isinstance(value, str) or value not in choices:
        near = f"; {nearest(value, choices)}" if isinstance(value, str) else ""
        raise ConfigurationError(
            f"{name} is {shown(value)}: it must be one of {', '.join(map(repr, choices))}{near}"
        )


def check_options(name: str, options: Mapping[str, Any], made_by: Callable[..., Any]) -> None:
    """Raise `ConfigurationError` for options that a function does not have, where it says what it has."""
    try:
        parameters = inspect.signature(made_by).parameters
    except (TypeError, ValueError):  # written in C
        return
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return
    for option in options:
        if option not in parameters:
            raise ConfigurationError(
                f"{name} has {option!r}, an unknown option: {nearest(option, parameters)}"
            )


def check_keywords(
    kind: type, given: Mapping[str, Any], hints: Mapping[str, str], also: Iterable[str] = ()
) -> None:
    """Raise `UnknownArgument` for arguments that a class does not take; hints: what to write instead.

    also: names that it takes beside those of its signature.
    """
    known = _called(kind).parameters
    if known.keys() >= given.keys() or any(each.kind is each.VAR_KEYWORD for each in known.values()):
        return
    names = {*known, *also}
    for name in given:
        if name not in names:
            advice = hints.get(name) or (nearest(name, names) if names else "it takes no arguments")
            raise UnknownArgument(f"{kind.__name__} takes no {name!r}: {advice}")


@cache
def _called(kind: Any) -> inspect.Signature:
    """How a class is called by its `__init__`."""
    own = [] if kind.__init__ is object.__init__ else inspect.signature(kind.__init__).parameters.values()
    return inspect.Signature([*own][1:])


class _CalledAsInit:
    """The signature of a class, for `inspect` and the reference, whose `__new__` only checks the names."""

    def __get__(self, instance: object, owner: Any) -> inspect.Signature:
        if instance is None and owner.__new__ is KnownKeywords.__new__:
            return _called(owner)
        raise AttributeError


class KnownKeywords:
    """Base of classes that answer an argument of an unknown name with the nearest: `UnknownArgument`."""

    __slots__ = ()
    _hints: ClassVar[Mapping[str, str]] = {}  # what to write instead

    if not TYPE_CHECKING:  # checkers of types know `__init__`
        __signature__ = _CalledAsInit()

        def __new__(cls, *args: object, **given: object) -> Self:
            if given:
                check_keywords(cls, given, cls._hints)
            new = super().__new__
            if new is not object.__new__:  # of another base, which may need them
                return new(cls, *args, **given)
            if args and cls.__init__ is object.__init__:  # which would take them without a word
                raise UnknownArgument(f"{cls.__name__} takes no arguments, and was given {shown(args[0])}")
            return new(cls)


def check_body(said: str, function: Any) -> None:
    """Raise `ConfigurationError` for a coroutine or a generator, which a call returns without running it."""
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(is_kind(function) for is_kind in kinds):
        raise ConfigurationError(
            f"{said} is a coroutine or a generator, whose body nobody would run: make it an ordinary method, "
            "without async and yield"
        )


def check_bodies(part: object, base: type) -> None:
    """`check_body` of the methods of `base` that a user's part overrides."""
    kind = type(part)
    for name in dir(base):
        method = inspect.getattr_static(kind, name, None)
        if method is not inspect.getattr_static(base, name) and not name.startswith("__"):
            check_body(f"{kind.__name__}.{name}", method)


def check_nothing_left(said: str, returned: object) -> None:
    """Raise `ConfigurationError` for what a call has returned that nobody runs or takes."""
    if inspect.isawaitable(returned) or inspect.isgenerator(returned) or inspect.isasyncgen(returned):
        raise ConfigurationError(
            f"{said} returned a {type(returned).__name__}, whose body nobody runs: do it in the call itself"
        )
    if getattr(returned, "shape", ()):
        raise ConfigurationError(
            f"{said} returned a {type(returned).__name__}, which nobody takes: change x in place, as by "
            "x -= learning_rate * gradient, and return nothing"
        )


def check_path(name: str, value: object) -> Path:
    """The path that a text or a path-like object means. Raises `ConfigurationError` where it means none.

    >>> check_path("path", "runs") == check_path("path", Path("runs"))
    True
    """
    if isinstance(value, (str, os.PathLike)):
        text = os.fspath(value)
        if isinstance(text, str) and max(map(len, text.split("/"))) > LONGEST_FILE_NAME:
            raise ConfigurationError(
                f"{name} is {shown(value)}: it must be a path, whose parts have {LONGEST_FILE_NAME} "
                "characters at most"
            )
        if isinstance(text, str) and text and "\0" not in text:
            try:
                os.fsencode(text)
                return Path(text).expanduser()
            except (UnicodeEncodeError, RuntimeError):  # half of a character; a home of nobody
                pass
    raise ConfigurationError(f"{name} is {shown(value)}: it must be a path, as a text or a pathlib.Path")


def check_items(name: str, value: object, wanted: str) -> tuple[Any, ...]:
    """The items of a sequence or another collection, which a text is none. Raises `ConfigurationError`."""
    if isinstance(value, (str, bytes, bytearray)) or not isinstance(value, Iterable):
        raise ConfigurationError(f"{name} is {shown(value)}: it must be {wanted}")
    return tuple(value)


def check_names(name: str, value: object, wanted: str) -> tuple[str, ...]:
    """The texts of a sequence. Raises `ConfigurationError` where one is none."""
    found = check_items(name, value, wanted)
    for each in found:
        check_kind(name, each, str, wanted)
    return found


def check_text(name: str, value: str) -> None:
    """Raise `ConfigurationError` for a text that no file of text could hold.

    >>> check_text("name", "caf\\udce9")
    Traceback (most recent call last):
    d5ray.errors.ConfigurationError: name is 'caf\\udce9', which is not UTF-8: write it in UTF-8
    """
    try:
        value.encode()
    except UnicodeEncodeError as error:
        told = f"{name} is {shown(value)}, which is not UTF-8: write it in UTF-8"
        raise ConfigurationError(told) from error


def check_source(name: str, path: Path | None) -> Path | None:
    """A path to read from, said under this name.

    Raises `ConfigurationError` for a folder, a device, or a pipe that has a name: nobody may ever write into
    it; those of a shell, <(…), have none.
    """
    if path is None or path.parent in (Path("/dev/fd"), Path("/proc/self/fd")) or path == Path("/dev/stdin"):
        return path
    check_path(name, path)
    if not path.is_file():
        what = "is not a file" if path.exists() else "does not exist"
        raise ConfigurationError(f"{name} {str(path)!r} {what}: give the path of a file that can be read")
    return path


def check_target(name: str, path: Path | None) -> Path | None:
    """A path to write to, said under this name.

    Raises `ConfigurationError` for an address, a device, a pipe, odd characters.
    """
    if path is not None:
        check_path(name, path)
        if path.parts[:1] and path.parts[0].endswith(":"):
            raise ConfigurationError(
                f"{name} {str(path)!r} is an address: give a path of this machine, and copy what is "
                "written there"
            )
        if not str(path).isprintable():
            raise ConfigurationError(f"{name} {str(path)!r} has characters that nobody sees: leave them out")
        if path.exists() and not (path.is_file() or path.is_dir()):  # which root would replace by a file
            raise ConfigurationError(f"{name} {str(path)!r} is a device or a pipe: give the path of a file")
    return path


def check_address(address: str | None) -> str | None:
    """The address of a Ray cluster. Raises `ConfigurationError` where it could be none; asks nobody.

    >>> check_address("localhost:6379"), check_address("auto"), check_address(None)
    ('localhost:6379', 'auto', None)
    """
    check_kind("the Ray address", address, str | None, "HOST:PORT, or 'auto'")
    if address is None or address in ("auto", "local"):
        return address
    if "://" in address:
        raise ConfigurationError(
            f"the Ray address is {address!r}: give the cluster's own HOST:PORT (as `ray start --head` prints "
            "it) or 'auto'; from outside a cluster use `ray job submit --address http://HOST:8265`"
        )
    host, _, port = address.rpartition(":")
    if not (host.isprintable() and host.strip() and port.isdecimal() and port.isascii()):
        raise ConfigurationError(f"the Ray address is {shown(address)}: it must be HOST:PORT, or 'auto'")
    if not 0 < int(port) < 2**16:
        raise ConfigurationError(f"the Ray address is {shown(address)}: its port must be from 1 to 65535")
    return address


def with_settings(thing: object) -> str:
    """An object by its class and the arguments of its constructor that it keeps under their names.

    >>> class TwoRings:
    ...     def __init__(self, agents, seed=0):
    ...         self.agents = agents
    >>> with_settings(TwoRings(6))
    'TwoRings(agents=6)'
    """
    try:
        names = list(inspect.signature(type(thing)).parameters)
    except (TypeError, ValueError):  # written in C
        names = []
    kept = {name: value for name in names if (value := getattr(thing, name, thing)) is not thing}
    return f"{type(thing).__name__}({', '.join(f'{name}={value!r}' for name, value in kept.items())})"


def shown(value: object) -> str:
    """A value as errors show it: not longer than a person reads, and without an address in memory."""
    try:
        text = with_settings(value) if type(value).__repr__ is object.__repr__ else repr(value)
    except ValueError:  # Python writes no number of more than some thousand digits
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}… ({len(text):,} characters)"
