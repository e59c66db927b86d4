"""The namespaces: which has which public name, read from its stub

`__init__.pyi` beside a namespace's `__init__.py` is the one list of its names: programs, editors and type
checkers read the same file. Nothing else is kept, generated or imported. A namespace without a stub is a
module, whose own classes are its names.
"""

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Any, Final

from d5ray.names.renamed import RENAMED

TOP: Final = "d5ray"
MOST: Final = 3  # names that an error suggests
AMONG: Final = 12  # names like a text, among which one of a kind may be


@cache
def table(namespace: str) -> dict[str, str]:
    """The names of a namespace, and the module that defines each.

    >>> table("d5ray.optimizers")["Adam"]
    'd5ray.training.optimizers.adam'
    """
    from pathlib import Path  # noqa: PLC0415 - it takes longer to import than all of `import d5ray`

    stub = Path(__file__).parent.parent.joinpath(*namespace.split(".")[1:], "__init__.pyi")
    if not stub.exists():
        own = vars(import_module(namespace)).items()
        return {name: namespace for name, it in own if isinstance(it, type) and it.__module__ == namespace}
    words = stub.read_text(encoding="utf-8").translate(dict.fromkeys(map(ord, "(,)"), " ")).split()
    return {words[at + 3]: words[at + 1] for at in range(0, len(words), 6)}  # from MODULE import NAME as NAME


@cache
def places() -> dict[str, str]:
    """Every public name, and the namespace that has it: one of them alone, or the top, where it is there too.

    >>> places()["Ring"], places()["Experiment"]
    ('d5ray.topologies', 'd5ray')
    """
    top = table(TOP)
    spaces = sorted(name for name, module in top.items() if module == TOP)
    found = {name: f"{TOP}.{space}" for space in spaces for name in table(f"{TOP}.{space}")}
    return found | {name: TOP for name in top if name not in spaces}


def public(name: str) -> Any:
    """The object of this public name, whichever namespace has it; its module is imported, and no other."""
    return getattr(import_module(places()[name]), name)


def shown(name: str) -> str:
    """A public name as a program writes it.

    >>> shown("Ring"), shown("Experiment")
    ('d5.topologies.Ring', 'd5.Experiment')
    """
    return f"{places()[name].replace(TOP, 'd5', 1)}.{name}"


def spelled(text: str) -> list[str]:
    """The public names that a text means, in any case of letters, with or without the namespace.

    A name that was renamed means its new one.

    >>> spelled("ring"), spelled("d5.topologies.Ring"), spelled("optimizers.Ring"), spelled("filldrain")
    (['Ring'], ['Ring'], [], ['GPipe'])
    """
    place, dot, name = text.rpartition(".")
    now = next((now for old, now in RENAMED.items() if old.lower() == name.lower()), name)
    text = f"{place}{dot}{now}"
    wanted = f".{text.removeprefix('d5ray.').removeprefix('d5.')}".lower()
    return [name for name in places() if f".{shown(name)}".lower().endswith(wanted)]


def classes(kind: type, candidates: Iterable[str]) -> list[Any]:
    """The classes of a kind among these public names, without abstract ones, and those of kits not there."""
    import inspect  # noqa: PLC0415 - as above

    return [
        thing
        for thing in (getattr(import_module(places()[name]), name, None) for name in candidates)
        if inspect.isclass(thing) and issubclass(thing, kind) and not inspect.isabstract(thing)
    ]


def near(kind: type, text: str) -> list[Any]:
    """The classes of a kind whose names resemble a text, or at least the nearest one."""
    return classes(kind, similar(text)) or classes(kind, similar(text, AMONG))[:1]


def similar(text: str, most: int = MOST) -> list[str]:
    """The public names that resemble a text most, the nearest first."""
    import difflib  # noqa: PLC0415 - for an error alone

    name = text.rpartition(".")[2].lower()
    by_letters: dict[str, list[str]] = {}
    for known in places():
        by_letters.setdefault(known.lower(), []).append(known)
    if name in by_letters and most == MOST:
        return by_letters[name]
    close = difflib.get_close_matches(name, by_letters, n=most, cutoff=0.6)
    return [known for letters in close for known in by_letters[letters]][:most]


def suggested(names: Iterable[str]) -> str:
    """The end of an error message that suggests public names.

    >>> suggested(["Ring", "Adam"])
    'did you mean d5.topologies.Ring or d5.optimizers.Adam?'
    """
    return f"did you mean {' or '.join(map(shown, names))}?"
