"""Traces of two runs, hash by hash, and where they part: which operation was not repeatable"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

DATA = "the batch"
RANDOM = "the state of the random numbers"
STATE = "the state that is not trained"
PARAMETERS = "the parameters"
INPUT, OUTPUT, GRADIENT = "input of ", "output of ", "gradient of "
LOSS = "the loss"


@final
@dataclass(frozen=True)
class Entry:
    """One thing that was computed, in the order in which it was."""

    step: int
    what: str
    digest: str


Trace = Sequence[Entry]


@final
@dataclass(frozen=True)
class Parting:
    """The first thing that differs between two traces of one agent."""

    step: int
    agent: int
    what: str
    meaning: str  # what that says about where the difference comes from


def first_parting(first: Mapping[int, Trace], second: Mapping[int, Trace]) -> Parting | None:
    """The first place where the traces of two runs part, of agents that both have; None if they agree."""
    found = [
        (place, rank, entry)
        for rank in sorted(first.keys() & second.keys())
        for place, entry in _differing(first[rank], second[rank])
    ]
    if not found:
        return None
    _, rank, entry = min(found, key=lambda parting: (parting[2].step, parting[0], parting[1]))
    return Parting(entry.step, rank, entry.what, meaning(entry.what))


def _differing(first: Trace, second: Trace) -> Iterable[tuple[int, Entry]]:
    """The first entry that differs, with its place; none where one trace is the beginning of the other."""
    for place, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return [(place, one)]
    return []


def meaning(what: str) -> str:
    """The meaning of this being the first thing that differs, as a sentence.

    >>> meaning("output of 3 (Dropout)")
    '3 (Dropout) makes something else of the same input'
    """
    kind = next((kind for kind in (INPUT, OUTPUT, GRADIENT) if what.startswith(kind)), what)
    name = what.removeprefix(kind)
    meanings = {
        DATA: "the data set or the sampler gives other samples",
        RANDOM: "something drew from the framework's generator, or seeded it",
        STATE: "the buffers of the model differ, though all it computed before was the same",
        PARAMETERS: "the exchange between the agents, or the update rule, makes something else of the same "
        "gradients",
        INPUT: f"an operation before {name}, in the forward pass of what holds it, makes something else of "
        "the same input",
        OUTPUT: f"{name} makes something else of the same input",
        GRADIENT: f"the backward pass: from the loss backwards, the gradient of {name} is the first that "
        "differs",
        LOSS: "the loss function makes something else of the same scores",
    }
    return meanings.get(kind, "the runs did different things")
