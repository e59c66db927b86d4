"""Equation: what an Einsum computes, with every index a letter"""

import string
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node_context import NodeContext


@final
@dataclass(frozen=True)
class Equation:
    """An equation of Einsum: a letter for each axis of each input, and those of the output."""

    terms: tuple[str, ...]
    output: str

    def __str__(self) -> str:
        return f"{','.join(self.terms)}->{self.output}"

    @staticmethod
    def parsed(context: NodeContext, shapes: Sequence[Sequence[int]]) -> "Equation":
        """The node's equation for inputs of these shapes: an ellipsis becomes letters, aligned at its end."""
        text = str(context.required("equation")).replace(" ", "")
        left, arrow, right = text.partition("->")
        written = left.split(",")
        if len(written) != len(shapes):
            raise ConfigurationError(
                f"{context.node} has the equation {text!r} with {len(written)} terms for {len(shapes)} inputs"
            )
        axes = [
            len(shape) - len(term.replace("...", "")) for term, shape in zip(written, shapes, strict=True)
        ]
        for term, shape, more in zip(written, shapes, axes, strict=True):
            if more < 0 or (more > 0 and "..." not in term):
                raise ConfigurationError(
                    f"{context.node} has the term {term!r} for an input of shape {tuple(shape)}: a letter "
                    "for every axis is needed, or '...' for those that are not named"
                )
        fresh = "".join(each for each in string.ascii_letters if each not in text)[: max(axes, default=0)]
        terms = tuple(
            term.replace("...", fresh[len(fresh) - more :]) for term, more in zip(written, axes, strict=True)
        )
        output = right.replace("...", fresh) if arrow else fresh + _once(written)
        if unknown := set(output) - set("".join(terms)):
            raise ConfigurationError(
                f"{context.node} has the equation {text!r}, in which no input has "
                f"{''.join(sorted(unknown))!r}"
            )
        return Equation(terms, output)

    def spare_letters(self) -> Iterable[str]:
        """Letters that no term has."""
        return (letter for letter in string.ascii_letters if letter not in "".join(self.terms))


def _once(terms: Sequence[str]) -> str:
    """The letters that occur exactly once, in ASCII order: the output where an equation has no arrow."""
    counts = Counter("".join(terms).replace(".", ""))
    return "".join(sorted(letter for letter, count in counts.items() if count == 1))
