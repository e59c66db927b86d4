"""Mutants: small changes of a program, of which a good test notices every one that changes what it does"""

import ast
import copy
import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

COMPARED = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
COMPUTED = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "*", ast.Pow: "*",
}  # fmt: skip
ALIKE = {"isinstance", "issubclass", "max", "min", "zip"}  # calls whose arguments are not worth swapping
SEQUENCES = (ast.JoinedStr, ast.List, ast.Tuple)  # what is added to these is no number
SILENT = (ast.JoinedStr, ast.Import, ast.ImportFrom)  # texts, and what has no other meaning


Key = tuple[str, int, str]


class Mutant(NamedTuple):
    """A change of one file: these bytes of it become others."""

    file: str
    line: int
    kind: str
    begin: int
    end: int
    now: str

    @property
    def key(self) -> Key:
        """What tells it from all others: the file, where it begins there, and what stands there then."""
        return self.file, self.begin, self.now

    def of(self, text: str) -> str:
        """The text of the file with the change."""
        data = text.encode()
        return (data[: self.begin] + self.now.encode() + data[self.end :]).decode()


def mutants(file: str, text: str) -> Iterator[Mutant]:
    """All mutants of a file.

    >>> text = "if not late and at < 3:\\n    self.left -= pull(self, at)"
    >>> for each in mutants("", text):
    ...     print(each.kind, "|", each.of(text).splitlines()[each.line - 1].strip())
    condition | if (not (not late and at < 3)):
    condition | if ((not late) or (at < 3)):
    not | if (late) and at < 3:
    comparison | if not late and ((at) <= (3)):
    constant | if not late and at < (4):
    statement | pass
    arguments | self.left -= (pull(at, self))
    """
    begins = [0]
    for line in text.encode().splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    for node in _running(ast.parse(text)):
        for place, kind, now in _changes(node):
            begin = begins[place.lineno - 1] + place.col_offset
            end = begins[place.end_lineno - 1] + place.end_col_offset
            yield Mutant(file, place.lineno, kind, begin, end, now)


def drawn(texts: dict[str, str], number: int, seed: str) -> list[Mutant]:
    """So many mutants of these files: each time a kind is drawn, then one of that kind."""
    by_kind = defaultdict[str, list[Mutant]](list)
    for file, text in sorted(texts.items()):
        for mutant in mutants(file, text):
            by_kind[mutant.kind].append(mutant)
    generator, found = random.Random(seed), list[Mutant]()
    while len(found) < number and by_kind:
        of_kind = by_kind[generator.choice(sorted(by_kind))]
        found.append(of_kind.pop(generator.randrange(len(of_kind))))
        by_kind = defaultdict(list, {kind: left for kind, left in by_kind.items() if left})
    return found


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all below it that runs: no annotation, decorator, text, or branch for type checkers."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list") or isinstance(node, ast.Raise):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, SILENT):
                continue
            if not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
                yield from _running(child)


def _changes(node: ast.AST) -> Iterator[tuple[Any, str, str]]:
    """What may be changed about a node: the place, it or a part of it; the kind; the new text."""
    match node:
        case ast.Compare(left=left, ops=[compared], comparators=[right]):
            yield node, "comparison", _between(left, COMPARED[type(compared)], right)
        case ast.BinOp(left=left, op=computed, right=right) if type(computed) in COMPUTED:
            if not any(isinstance(side, SEQUENCES) or _is_text(side) for side in (left, right)):
                yield node, "arithmetic", _between(left, COMPUTED[type(computed)], right)
        case ast.UnaryOp(op=ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            yield node, "arithmetic", f"({ast.unparse(operand)})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, "not", f"({ast.unparse(operand)})"
        case ast.BoolOp(op=joined, values=values):
            word = " or " if isinstance(joined, ast.And) else " and "
            yield node, "condition", f"({word.join(f'({ast.unparse(value)})' for value in values)})"
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield test, "condition", f"(not ({ast.unparse(test)}))"
        case ast.Constant(value=bool() as flag):
            yield node, "constant", str(not flag)
        case ast.Constant(value=int() | float() as number):
            yield node, "constant", f"({number + (1 if node.lineno % 2 else -1)!r})"
        case ast.Return(value=ast.expr() as returned) if ast.unparse(returned) != "None":
            yield node, "return", "return None"
        case ast.Call(func=function, args=[first, second, *_]) if ast.unparse(function) not in ALIKE:
            fixed = any(isinstance(each, (ast.Starred, ast.Constant)) for each in (first, second))
            if not fixed and ast.dump(first) != ast.dump(second):
                swapped = copy.deepcopy(node)
                swapped.args[:2] = [second, first]
                yield node, "arguments", f"({ast.unparse(swapped)})"
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Delete() | ast.Raise():
            yield node, "statement", "pass"
        case ast.Continue() | ast.Break():
            yield node, "statement", "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield node, "statement", "pass"


def _between(left: ast.expr, word: str, right: ast.expr) -> str:
    return f"(({ast.unparse(left)}) {word} ({ast.unparse(right)}))"


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
