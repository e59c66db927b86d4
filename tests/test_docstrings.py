"""Claims about docstrings: every public definition has one, and each can be read alone

Public is what a module of the product defines at its top, and what a public class has, under a name without
an underscore in front. A method that overrides one of d5ray's with a docstring has that docstring, as
`inspect.getdoc` and editors show it.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tests.test_layout import LINKED, sources

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
FRAGMENTS = (  # a docstring that begins so goes on from the name, or from the definition above
    "Also And As At But By Else For From How In Into It Its Like Likewise Of On Or Over Same So Than That "
    "Their Then These Those To Until What When Where Whether Which While Who Whose With Without"
)
HASHED = ("recipes/models.py",)  # the source of its networks is part of recipes' hashes
FRAGMENT = re.compile(rf"The same\b|(?:{FRAGMENTS.replace(' ', '|')})\b")
PARAMETER = re.compile(r"[a-z_]+: ")  # of a parameter alone, not of what it is a parameter of


@dataclass(frozen=True)
class Found:
    """A definition, where it stands, and the class that has it."""

    path: str
    name: str
    node: Definition
    owner: ast.ClassDef | None = None

    def __str__(self) -> str:
        return f"{self.path}:{self.node.lineno} {self.name}"


@cache
def trees() -> dict[str, ast.Module]:
    """The product's files by their path in the repository."""
    return sources("d5ray", *LINKED)


def defined(body: list[ast.stmt]) -> Iterator[Definition]:
    """The definitions among statements, without setters of properties and signatures of overloads."""
    for node in body:
        if isinstance(node, Definition):
            said = [ast.unparse(each) for each in node.decorator_list]
            if not any(each.endswith((".setter", ".deleter", "overload")) for each in said):
                yield node


@cache
def public() -> tuple[Found, ...]:
    """The product's public definitions."""
    found = []
    for path, tree in trees().items():
        for node in defined(tree.body):
            if node.name.startswith("_"):
                continue
            found.append(Found(path, node.name, node))
            if isinstance(node, ast.ClassDef):
                inner = [each for each in defined(node.body) if not each.name.startswith("_")]
                found += [Found(path, f"{node.name}.{each.name}", each, node) for each in inner]
    return tuple(found)


def module(path: str) -> str:
    """The name that a file is imported by."""
    dotted = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return dotted if dotted.partition(".")[0] == "d5ray" else f"d5ray.{dotted}"


@cache
def classes() -> dict[tuple[str, str], ast.ClassDef]:
    """Every class of the product, by the module that defines it and its name."""
    return {
        (module(path), node.name): node
        for path, tree in trees().items()
        for node in defined(tree.body)
        if isinstance(node, ast.ClassDef)
    }


@cache
def imports() -> dict[str, dict[str, tuple[str, str]]]:
    """By module: the module and the name behind each name that it imports from somewhere."""
    return {
        module(path): {
            alias.asname or alias.name: (str(node.module), alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for path, tree in trees().items()
    }


def bases(at: str, node: ast.ClassDef) -> Iterator[ast.ClassDef]:
    """The product's classes that a class of the module derives from, the nearest first."""
    for base in node.bases:
        name = ast.unparse(base.value if isinstance(base, ast.Subscript) else base)
        where = imports()[at].get(name, (at, name))
        if where in classes():
            yield classes()[where]
            yield from bases(where[0], classes()[where])


def described(found: Found) -> bool:
    """Whether the definition has a docstring, or overrides a method that has one.

    The members of a protocol are those of the classes that it is a view of, which describe them.
    """
    if ast.get_docstring(found.node) is not None or found.owner is None:
        return ast.get_docstring(found.node) is not None
    if any(ast.unparse(base).partition("[")[0] == "Protocol" for base in found.owner.bases):
        return True
    return any(
        each.name == found.node.name and ast.get_docstring(each) is not None
        for base in bases(module(found.path), found.owner)
        for each in defined(base.body)
    )


def test_every_public_definition_has_a_docstring() -> None:
    """Its own, or that of the method it overrides."""
    without = [each for each in public() if not described(each)]
    assert [str(each) for each in without if each.path not in HASHED] == []
    assert {each.node.name for each in without} == {"forward"}  # of `nn.Module`


def test_an_override_has_the_docstring_of_what_it_overrides() -> None:
    """`Adam.move` is described by `Moments.move` in its file, `PowerSGD.state` by a class of another file."""
    found = {each.name: each for each in public() if each.path.startswith("d5ray/")}
    for name in ("Adam.move", "PowerSGD.state", "Ring.out_neighbors"):
        assert ast.get_docstring(found[name].node) is None and described(found[name])


def test_every_file_says_what_it_holds() -> None:
    """In the first line of its docstring, which the generated map of files shows."""
    first = {path: (ast.get_docstring(tree) or "").partition("\n")[0] for path, tree in trees().items()}
    assert [path for path, line in first.items() if not line or FRAGMENT.match(line)] == []


def test_docstrings_can_be_read_alone() -> None:
    """None goes on from the name that it belongs to, or from the docstring above it, as these would."""
    assert all(
        FRAGMENT.match(text)
        for text in ("Of this process.", "Whether it is.", "The same, but later.", "What it has.")
    )
    assert not any(
        FRAGMENT.match(text) for text in ("Own arrays.", "Sources of it.", "The samples.", "x ← U(x)")
    )
    said = {str(each): ast.get_docstring(each.node) or "" for each in public()}
    assert [name for name, text in said.items() if FRAGMENT.match(text) or PARAMETER.match(text)] == []


def test_docstrings_end_with_a_full_stop() -> None:
    """The first paragraph of each, also where it is a formula: it is a sentence all the same."""
    said = {str(each): ast.get_docstring(each.node) or "" for each in public() if each.path not in HASHED}
    first = {name: text.partition("\n\n")[0].rstrip() for name, text in said.items() if text}
    assert [name for name, text in first.items() if not text.endswith((".", ":", "?", "…"))] == []
