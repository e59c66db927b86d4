"""Texts of recipes and of --set as values: plain data of Python, classes of d5ray, and calls of these"""

import ast
import inspect
from collections.abc import Iterable
from typing import Any, Final

from d5ray.errors import ConfigurationError
from d5ray.names import namespaces

STARRED: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


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


def settings_of(texts: Iterable[str]) -> dict[str, Any]:
    """The values of several `--set key=value`, by key. Raises `ConfigurationError` for a key given twice."""
    found: dict[str, Any] = {}
    for key, value in map(parsed, texts):
        if key in found:
            raise ConfigurationError(
                f"--set {key} is given twice, as {found[key]!r} and as {value!r}: leave one of them out"
            )
        found[key] = value
    return found


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
        known = namespaces.classes(kind, namespaces.spelled(text.partition("(")[0].strip()))
        example = called(key, known[0]) if known else "a name of d5ray with its arguments"
        raise ConfigurationError(f"{key}={text} cannot be made: {error}; write {example}") from error
    for part in made if isinstance(made, tuple) else (made,):
        if not isinstance(part, kind):
            verb = "has" if isinstance(made, tuple) else "is"
            raise ConfigurationError(
                f"{key}={text} {verb} a {type(part).__name__}: it must be a {kind.__name__}"
            )
    return made


def called(key: str, made: Any) -> str:
    """What to write for a class, with the arguments that it needs, or else those that it takes.

    >>> from d5ray.topologies import Torus
    >>> called("topology", Torus)
    'topology=Torus(rows, columns)'
    """
    taken = [each for each in inspect.signature(made).parameters.values() if each.kind not in STARRED]
    needed = [each for each in taken if each.default is each.empty]
    return f"{key}={made.__name__}({', '.join(each.name for each in needed or taken)})"


def _evaluated(key: str, node: ast.expr) -> Any:
    """Calls of d5ray's classes, and plain values; nothing else is run."""
    if isinstance(node, ast.Call) and _is_name(node.func):
        made = named(key, object, ast.unparse(node.func))
        return made(*_items(key, node.args), **_keywords(key, node.keywords))
    if _is_name(node):
        return named(key, object, ast.unparse(node))
    if isinstance(node, ast.Dict):
        found: dict[Any, Any] = {}
        for name, value in zip(node.keys, node.values, strict=True):
            own = _evaluated(key, value)
            found |= own if name is None else {ast.literal_eval(name): own}
        return found
    if isinstance(node, ast.Tuple):
        return tuple(_items(key, node.elts))
    if isinstance(node, ast.List):
        return _items(key, node.elts)
    return ast.literal_eval(node)


def _items(key: str, nodes: Iterable[ast.expr]) -> list[Any]:
    """The values of arguments or items, those of `*(1, 2)` among them."""
    found: list[Any] = []
    for node in nodes:
        if isinstance(node, ast.Starred):
            found += _evaluated(key, node.value)
        else:
            found.append(_evaluated(key, node))
    return found


def _keywords(key: str, words: Iterable[ast.keyword]) -> dict[str, Any]:
    """The arguments by name, those of `**{"beta1": 0.9}` among them; raises `TypeError` as Python does."""
    found: dict[str, Any] = {}
    for word in words:
        value = _evaluated(key, word.value)
        given = {word.arg: value} if word.arg else value
        if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
            raise TypeError(f"**{ast.unparse(word.value)} is no dictionary of arguments by their names")
        if twice := given.keys() & found.keys():
            raise TypeError(f"{', '.join(sorted(twice))} is given twice")
        found |= given
    return found


def _is_name(node: ast.expr) -> bool:
    """Whether this is `Ring` or `d5.topologies.Ring`."""
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and _is_name(node.value))


def named(key: str, kind: type, name: str) -> Any:
    """The class of d5ray that a recipe names, in any case of letters; its module alone is imported."""
    if found := namespaces.classes(kind, namespaces.spelled(name)):
        return found[0]
    what = "class of d5ray" if kind is object else kind.__name__
    raise ConfigurationError(f"{key}: there is no {what} named {name!r}: {_near(kind, name)}")


def _near(kind: type, name: str) -> str:
    """The end of an error about an unknown class: the nearest of the kind, or all of it, if those are few."""
    if near := namespaces.near(kind, name):
        return namespaces.suggested(thing.__name__ for thing in near)
    if kind is object:
        return "dir(d5ray) lists the namespaces, dir(d5ray.topologies) the names of one"
    known = namespaces.classes(kind, namespaces.places())
    return f"known: {', '.join(sorted(thing.__name__ for thing in known))}"
