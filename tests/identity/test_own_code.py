"""Claims about hashes of the user's own code: what does another thing has another hash, however it is run"""

import importlib.util
import json
import socket
import sys
import textwrap
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.identity.canonical import canonical, digest
from tests.conftest import python

# Programs that make a `thing`, with a 3 that counts wherever it stands.
COUNTS = {
    "data classes": """
        @dataclass(frozen=True, slots=True)
        class Frozen:
            rate: float = 0.1
            def step(self):
                return self.rate * 3
        def rates():
            return [3]
        @dataclass
        class Defaults:
            rate: float = 3
            rates: list = field(default_factory=rates)
        @dataclass
        class Beside:
            rate: float = 0.1
            def __post_init__(self):
                self.other = int("3")
        thing = Frozen, Defaults, Beside()
    """,
    "classes that hold values elsewhere": """
        class Pair(NamedTuple):
            rate: float = 0.1
            def step(self):
                return self.rate * 3
        class Choice(enum.Enum):
            A = 1
            def step(self):
                return 3
        class Rate(float):
            def step(self):
                return 3
        class Rates(dict):
            pass
        rates = Rates(a=1)
        rates.rate = 3
        class Slotted:
            __slots__ = ("rate",)
        class Rule(Slotted):
            pass
        rule = Rule()
        rule.rate, rule.other = 3, 0
        thing = Pair(0.2), Choice.A, [Rate(0.5)], rates, rule
    """,
    "lambdas": """
        one, _ = [lambda x: x + 1, lambda x: x + 2][:: 1 if int("3") < 4 else -1]
        thing = [one, lambda x: x * 3]
    """,
    "globals": """
        from math import sin, cos
        THREE, WEIGHTS = 3, np.full(2, 3)
        class Settings:
            def __init__(self, width):
                self.width = width
        SETTINGS = Settings(3)
        helpers = types.ModuleType("helpers")
        helpers.WIDTH = 3
        wave = sin if int("3") < 4 else cos
        scaled = functools.partial(pow, 3)
        def thing(x):
            return THREE * WEIGHTS * SETTINGS.width * helpers.WIDTH * wave(scaled(x))
    """,
    "defaults and closures": """
        def made(k):
            return lambda x: x * k
        def both(f, g):
            return lambda x: f(g(x) + 1)
        def scaled(x, *, scale=np.float64(3)):
            return x * scale
        def late(x=0):
            return x
        late.__defaults__ = (int("3"),)
        thing = [scaled, late, made(3), made(types.SimpleNamespace(rate=3))]
        thing.append(both(made(2), made(5)) if int("3") < 4 else both(made(5), made(2)))
    """,
    "decorators": """
        SCALE = int("3")
        def scaled(by):
            def decorate(function):
                @functools.wraps(function)
                def inner(*given):
                    return by * 3 * function(*given)
                return inner
            return decorate
        class Rule:
            @scaled(SCALE)
            def step(self):
                return 1
        @functools.lru_cache
        def cached(x):
            return x * 3
        @torch.no_grad()
        def wrapped(x):
            return x * 3
        thing = [Rule, lambda x: wrapped(cached(x))]
    """,
    "property, static and class methods": """
        A, B, C, D = 3, 3, 3, 3
        class Rule:
            @property
            def rate(self):
                return A
            @rate.setter
            def rate(self, value):
                self.x = B
            @staticmethod
            def one():
                return C
            @functools.cached_property
            def other(self):
                return D
            def scaled(self, by):
                return by
            tripled = functools.partialmethod(scaled, 3)
        thing = Rule
    """,
    "classes of classes": """
        WIDTH = 3
        class Outer:
            class Inner:
                def width(self):
                    return WIDTH
        class Meta(type):
            def __call__(cls):
                return 3
        class Made(metaclass=Meta):
            pass
        class Base:
            def step(self):
                return 3
        class Rule(Base):
            rate = 1
        def other(self):
            return 3
        Rule.rate, Rule.other = int("3"), other
        thing = Outer, Made, Rule
    """,
    "one of two classes of a name": """
        class Rule:
            def step(self):
                return 3
        thing = Rule
        class Rule:
            def step(self):
                return 4
    """,
    "private arrays and keys": """
        class Rule:
            def __init__(self):
                self._weights, self._rate = np.full(2, 3), 3
                self.__hidden = np.full(2, 3)
        thing = Rule(), {len: 3, sum: 1}, {1: 3, '1': 4}
    """,
    "modules": """
        class Layer(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = int("3")
            def forward(self, x):
                return x * 3
        torch.manual_seed(0)
        one, other, frozen, ends = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2), nn.Identity()
        other.load_state_dict(one.state_dict())
        frozen.bias.requires_grad_(int("3") < 4)
        ends.register_buffer("mask", torch.tensor([3], dtype=torch.bfloat16), persistent=False)
        ends.register_forward_hook(lambda module, given, output: output * 3)
        tied = nn.Sequential(one, one if int("3") < 4 else other)
        from collections import OrderedDict
        layers = [("a", nn.ReLU()), ("b", nn.Tanh())]
        ordered = nn.Sequential(OrderedDict(layers if int("3") < 4 else layers[::-1]))
        thing = nn.Sequential(Layer(), tied, frozen, ends, ordered)
    """,
}  # fmt: skip
IMPORTS = """
import enum, functools, types
from dataclasses import dataclass, field
from typing import NamedTuple
import numpy as np
import torch
from torch import nn
"""
Way = Callable[..., Any]


def program(text: str) -> str:
    return IMPORTS + textwrap.dedent(text)


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Way:
    """What the program makes as a module with a file."""

    def from_file(text: str, name: str = "mine") -> Any:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        (folder / "mine.py").write_text(program(text))
        spec = importlib.util.spec_from_file_location(name, folder / "mine.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module.thing

    return from_file


@pytest.fixture(params=["file", "exec", "main"])
def made(request: pytest.FixtureRequest) -> Way:
    """What the program makes as a module with a file, without any, or as part of the main program."""

    def by_exec(text: str) -> Any:
        names: dict[str, Any] = {"__name__": "__main__"} if request.param == "main" else {}
        exec(program(text), names)
        return names["thing"]

    load = request.getfixturevalue("load")
    return load if request.param == "file" else by_exec


def test_what_does_the_same_has_the_same_hash(load: Way) -> None:
    """Under the names that a file has as a script, module or recipe, whatever it does not use, and caches."""
    text = "UNUSED, DEPTH = 1, 3\ndef half(x):\n    return x / 2\n"
    text += "class thing:\n    def width(self):\n        return half(DEPTH)\n"
    whole = digest(load(text))
    for name in ("yours", "d5ray.recipes.mine"):
        assert digest(load(text, name)) == whole
    assert digest(load(text.replace("1, 3", "2, 3"))) == whole
    thing = load(text)
    rule, tuned = thing(), thing()
    rule._cache, tuned._cache = object(), object()
    assert digest(rule) == digest(tuned) and canonical(rule) == {"class": canonical(thing)}
    tuned.period = 3
    assert canonical(tuned) == {**canonical(rule), "period": 3}


@pytest.mark.parametrize("case", COUNTS)
def test_what_does_another_thing_has_another_hash(made: Way, case: str) -> None:
    """The same program again, lower in its file, is the same; with a 4 for any one 3 it is another."""
    text = textwrap.dedent(COUNTS[case])
    whole, pieces = digest(made(text)), text.split("3")
    assert digest(made(f"# a line\n\n{text}")) == whole
    for at in range(1, len(pieces)):
        assert digest(made(f"{'3'.join(pieces[:at])}4{'3'.join(pieces[at:])}")) != whole


DATA = {
    "data": """
        import d5ray as d5
        from pathlib import PurePosixPath
        rule = functools.partial(d5.optimizers.Momentum, momentum=0.5)
        sets = {'a', 'b', 'c', ('x', 1)}, frozenset('hello')
        thing = [sets, float('nan'), d5.optimizers.SGD, d5.optimizers.Momentum(0.1), rule, np.arange(5),
                 {'z': {'y': (1, 2)}, 'path': PurePosixPath('a/b')}]
    """,
    "an experiment": """
        import d5ray as d5
        given = {'hidden': (10, 20), 'channels': {'a', 'b', 'c'}}
        rule, ring = d5.optimizers.Momentum(0.1, 0.9), d5.topologies.Ring(3)
        thing = d5.Experiment('lenet', 'digits', rule, topology=ring, model_kwargs=given).hash
    """,
}
EXECUTED = pytest.param(["-c", "import sys; exec(sys.stdin.read())"], id="exec", marks=pytest.mark.full)


@pytest.mark.parametrize("way", [pytest.param(["-"], id="stdin"), EXECUTED])
def test_hashes_are_the_same_in_every_process(way: list[str]) -> None:
    """Where nobody kept a source, with another order of sets, and whatever was hashed before."""
    programs = {case: program(text) for case, text in (COUNTS | DATA).items()}
    text = (
        f"import json\nfrom d5ray.identity.canonical import digest\nfound = {{}}\nprograms = {programs!r}\n"
        "for case, text in programs.items():\n"
        "    names = {'__name__': '__main__'}\n"
        "    exec(text, names)\n"
        "    found[case] = digest(names['thing'])\n"
        "print(json.dumps(found))"
    )
    found = []
    for seed in ("1", "2"):
        found.append(python(*way, given=text, env={"PYTHONHASHSEED": seed}).json)
    assert found[0] == found[1]


def test_a_file_that_was_edited_since_does_not_stand_for_what_runs(tmp_path: Path) -> None:
    """The class that was loaded is hashed, not the text that stands there now."""
    sys.path.insert(0, str(tmp_path))
    try:
        (tmp_path / "edited_since.py").write_text("class Rule:\n    def step(self):\n        return 1\n")
        rule = importlib.import_module("edited_since").Rule
        before = canonical(rule)
        (tmp_path / "edited_since.py").write_text("class Rule:\n    def step(self):\n        return 22\n")
        stale = canonical(rule)
        del sys.modules["edited_since"]
        importlib.invalidate_caches()
        assert canonical(importlib.import_module("edited_since").Rule) not in (before, stale)
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("edited_since", None)


# -- what is met on the way --------------------------------------------------------------------------------


class Node:
    """An object that can hold others, and itself."""

    def __init__(self, *held: Any) -> None:
        self.held = list(held)


def cycle() -> Any:
    node = Node()
    node.held.append({"again": (node,)})
    return node


def own_instances() -> Any:
    """A class made in a function, whose closure holds a list of its own instances."""
    kept: list[Any] = []

    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * len(kept)

    kept += [Net(), Net()]
    return Net


def by_default() -> Any:
    def function(x: int, seen: list[Any] = []) -> int:  # noqa: B006 - that is the case
        return x + len(seen)

    function.__defaults__[0].append(function)  # type: ignore[index]
    return function


def each_other() -> Any:
    class A:
        def other(self) -> Any:
            return B

    class B:
        def other(self) -> Any:
            return A

    return A


def modules_each_other() -> Any:
    first, second = types.ModuleType("first"), types.ModuleType("second")
    vars(first)["second"], vars(second)["first"] = second, first
    exec("def function(): return first.second.first", names := {"first": first, "__name__": "__main__"})
    return names["function"]


def closing_over(value: Any) -> Any:
    return lambda x: (x, value)


def dag(make: Callable[[Any], Any]) -> Any:
    found: Any = make([])
    for _ in range(60):
        found = make([found, found])
    return found


def layers() -> Any:
    found: list[Any] = []
    for _ in range(40):
        found.append(Node(*found))
    return found[-1]


MET: dict[str, Callable[[], Any]] = {
    "an object that holds itself": cycle,
    "a closure over instances of the class": own_instances,
    "a default that holds the function": by_default,
    "classes that name each other": each_other,
    "modules that name each other": modules_each_other,
    "2⁶⁰ lists": lambda: dag(lambda held: held),
    "2⁶⁰ objects": lambda: dag(lambda held: Node(*held)),
    "layers that hold all before": layers,
    "an array of 80 MB": lambda: closing_over(np.arange(10_000_000)),
    "a lock": lambda: closing_over(threading.Lock()),
    "a module": lambda: closing_over(json),
    "a tensor on no device": lambda: closing_over(torch.empty(3, device="meta")),
    "a sparse tensor": lambda: closing_over(torch.eye(3).to_sparse()),
    "a scripted module": lambda: torch.jit.script(nn.Sequential(nn.ReLU())),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@pytest.mark.parametrize("case", MET)
def test_whatever_is_met_is_hashed_in_bounded_time(case: str) -> None:
    """And twice alike, though made anew."""
    assert digest(MET[case]()) == digest(MET[case]())


def test_an_open_file_or_socket_stays_open(tmp_path: Path) -> None:
    """It counts with its name; nothing is done to it."""
    with (tmp_path / "one").open("w") as one, (tmp_path / "other").open("w") as other, socket.socket() as end:
        assert digest(closing_over(one)) == digest(closing_over(one)) != digest(closing_over(other))
        assert digest(closing_over(end)) == digest(closing_over(end))
        assert one.write("still open") == 10 and end.fileno() > 0


def deep() -> Any:
    found: list[Any] = []
    for _ in range(100_000):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Node(n for n in range(3)), ["held", "generator"]),
        (lambda: closing_over(n for n in range(3)), ["closing_over.<locals>.<lambda>: value", "generator"]),
        (deep, ["nests too deep"]),
    ],
)  # fmt: skip
def test_what_cannot_be_hashed_is_named(make: Callable[[], Any], words: list[str]) -> None:
    """By its place, in an error for people."""
    with pytest.raises(ConfigurationError) as raised:
        canonical(make())
    assert all(word in str(raised.value) for word in words)


def test_an_experiment_of_many_values_has_a_description_and_a_hash() -> None:
    """None of its fields is too large to be said in full, but all of them together are."""

    def made(last: int) -> d5.Experiment:
        layers = [{"depth": [*range(60_000), last]}, {"width": [*range(60_000)]}]
        return d5.Experiment(
            nn.Linear, "digits", d5.optimizers.SGD(0.1), model_kwargs=layers[0], loss=Holds(layers[1])
        )

    assert made(1).describe()["model_kwargs"].keys() == {"depth"}
    assert made(1).hash == made(1).hash != made(2).hash


class Holds(nn.Module):
    def __init__(self, held: Any) -> None:
        super().__init__()
        self.held = held

    def forward(self, scores: Any, labels: Any) -> Any:
        return nn.functional.cross_entropy(scores, labels)
