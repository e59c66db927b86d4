"""Texts of recipes and of --set as values: plain data of Python, classes of d5ray, and calls of these"""

import ast
import inspect
from collections.abc import Iterable
from typing import Any

from d5ray.errors import ConfigurationError
from d5ray.names import namespaces


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
