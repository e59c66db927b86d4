"""Claims about hashes of the user's own code: what does another thing has another hash, however it is run"""

import importlib.util
import json
import os
import socket
import subprocess
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

from d5ray.errors import ConfigurationError
from d5ray.identity.canonical import canonical, digest
from tests.patience import patience

# Programs that make a `thing`, with a 3 that counts wherever it stands.
COUNTS = {
    "frozen data class: method": """
        @dataclass(frozen=True)
        class Rule:
            rate: float = 0.1
            def step(self):
                return self.rate * 3
        thing = Rule
    """,
    "data class: default": """
        @dataclass
        class Rule:
            rate: float = 3
        thing = Rule
    """,
    "data class: default that is computed": """
        THREE = int("3")
        @dataclass
        class Rule:
            rate: float = THREE
        thing = Rule
    """,
    "data class: factory": """
        def rates():
            return [3]
        @dataclass
        class Rule:
            rates: list = field(default_factory=rates)
        thing = Rule
    """,
    "data class: attribute beside the fields": """
        @dataclass
        class Rule:
            rate: float = 0.1
            def __post_init__(self):
                self.other = int("3")
        thing = Rule()
    """,
    "data class with slots": """
        @dataclass(frozen=True, slots=True)
        class Rule:
            rate: float = 0.1
            def step(self):
                return self.rate * 3
        thing = Rule
    """,
    "named tuple": """
        class Rule(NamedTuple):
            rate: float = 0.1
            def step(self):
                return self.rate * 3
        thing = Rule(0.2)
    """,
    "enumeration": """
        class Rule(enum.Enum):
            A = 1
            def step(self):
                return 3
        thing = Rule.A
    """,
    "number with a class": """
        class Rate(float):
            def step(self):
                return 3
        thing = [Rate(0.5)]
    """,
    "dictionary with attributes": """
        class Rates(dict):
            pass
        thing = Rates(a=1)
        thing.rate = 3
    """,
    "slots below attributes": """
        class Slotted:
            __slots__ = ("rate",)
        class Rule(Slotted):
            pass
        thing = Rule()
        thing.rate, thing.other = 3, 0
    """,
    "lambda": "thing = lambda x: x * 3",
    "one of two lambdas on a line": """
        thing, _ = [lambda x: x + 1, lambda x: x + 2][:: 1 if int("3") < 4 else -1]
    """,
    "lambda over several lines": """
        thing = list([
            lambda x: (
                x + 3
            ),
        ])[0]
    """,
    "global": """
        THREE = 3
        def thing():
            return THREE
    """,
    "object as global": """
        class Settings:
            def __init__(self, width):
                self.width = width
        SETTINGS = Settings(3)
        def thing():
            return SETTINGS.width
    """,
    "array as global": """
        WEIGHTS = np.full(2, 3)
        def thing(x):
            return x * WEIGHTS
    """,
    "partial function as global": """
        scaled = functools.partial(pow, 3)
        def thing(x):
            return scaled(x)
    """,
    "module as global": """
        helpers = types.ModuleType("helpers")
        helpers.WIDTH = 3
        def thing():
            return helpers.WIDTH
    """,
    "which function an alias means": """
        from math import sin, cos
        wave = sin if int("3") < 4 else cos
        def thing(x):
            return wave(x)
    """,
    "which module an alias means": """
        import math, cmath
        m = math if int("3") < 4 else cmath
        def thing(x):
            return m.sin(x)
    """,
    "default": """
        def thing(x, *, scale=np.float64(3)):
            return x * scale
    """,
    "closure": """
        def made(k):
            return lambda x: x * k
        thing = made(3)
    """,
    "order of two closures": """
        def made(k):
            return lambda x: x * k
        def both(f, g):
            return lambda x: f(g(x) + 1)
        thing = both(made(2), made(5)) if int("3") < 4 else both(made(5), made(2))
    """,
    "decorator": """
        def scaled(function):
            @functools.wraps(function)
            def inner(*given):
                return 3 * function(*given)
            return inner
        class Rule:
            @scaled
            def step(self):
                return 1
        thing = Rule
    """,
    "argument of a decorator": """
        SCALE = int("3")
        def scaled(by):
            def decorate(function):
                @functools.wraps(function)
                def inner(*given):
                    return by * function(*given)
                return inner
            return decorate
        @scaled(SCALE)
        def thing():
            return 1
    """,
    "cached function": """
        @functools.lru_cache
        def helper(x):
            return x * 3
        def thing(x):
            return helper(x)
    """,
    "what an installed package wrapped": """
        @torch.no_grad()
        def helper(x):
            return x * 3
        def thing(x):
            return helper(x)
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
        thing = Rule
    """,
    "class in a class": """
        WIDTH = 3
        class Rule:
            class Inner:
                def width(self):
                    return WIDTH
        thing = Rule
    """,
    "metaclass": """
        class Meta(type):
            def __call__(cls):
                return 3
        class Rule(metaclass=Meta):
            pass
        thing = Rule
    """,
    "base": """
        class Base:
            def step(self):
                return 3
        class Rule(Base):
            pass
        thing = Rule
    """,
    "attribute set afterwards": """
        class Rule:
            rate = 1
        Rule.rate = int("3")
        thing = Rule
    """,
    "method put in afterwards": """
        class Rule:
            def step(self):
                return 1
        def other(self):
            return 3
        Rule.step = other
        thing = Rule
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
    "class without a statement": """
        thing = type("Rule", (), {"step": lambda self: 3, "rate": 1})
    """,
    "private array": """
        class Rule:
            def __init__(self):
                self._weights = np.full(2, 3)
                self.__hidden = np.full(2, 3)
        thing = Rule()
    """,
    "keys that are objects": "thing = {len: 3, sum: 1}",
    "keys with one text": "thing = {1: 3, '1': 4}",
    "module: attribute": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = int("3")
        thing = Net()
    """,
    "module: a layer's class": """
        class Layer(nn.Module):
            def forward(self, x):
                return x * 3
        thing = nn.Sequential(Layer())
    """,
    "module: what is tied": """
        torch.manual_seed(0)
        one, other = nn.Linear(2, 2), nn.Linear(2, 2)
        other.load_state_dict(one.state_dict())
        thing = nn.Sequential(one, one if int("3") < 4 else other)
    """,
    "module: what is frozen": """
        torch.manual_seed(0)
        thing = nn.Linear(2, 2)
        thing.bias.requires_grad_(int("3") < 4)
    """,
    "module: buffers and bfloat16": """
        thing = nn.Identity()
        thing.register_buffer("mask", torch.tensor([3], dtype=torch.bfloat16), persistent=False)
    """,
    "module: hook": """
        thing = nn.Identity()
        thing.register_forward_hook(lambda module, given, output: output * 3)
    """,
    "module: order of layers": """
        from collections import OrderedDict
        layers = [("a", nn.ReLU()), ("b", nn.Tanh())]
        thing = nn.Sequential(OrderedDict(layers if int("3") < 4 else layers[::-1]))
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
Way = Callable[[str], Any]


def program(text: str) -> str:
    return IMPORTS + textwrap.dedent(text)


@pytest.fixture(params=["file", "exec", "main"])
def made(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Way:
    """What the program makes as a module with a file, without any, or as part of the main program."""

    def from_file(text: str) -> Any:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        (folder / "mine.py").write_text(program(text))
        spec = importlib.util.spec_from_file_location("mine", folder / "mine.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "mine", module)
        spec.loader.exec_module(module)
        return module.thing

    def by_exec(text: str) -> Any:
        names: dict[str, Any] = {"__name__": "__main__"} if request.param == "main" else {}
        exec(program(text), names)
        return names["thing"]

    return from_file if request.param == "file" else by_exec


@pytest.mark.parametrize("case", COUNTS)
def test_what_does_another_thing_has_another_hash(made: Way, case: str) -> None:
    """The same program again, lower in its file, is the same; with a 4 for any one 3 it is another."""
    text = textwrap.dedent(COUNTS[case])
    whole, pieces = digest(made(text)), text.split("3")
    assert digest(made(f"# a line\n\n{text}")) == whole
    for at in range(1, len(pieces)):
        assert digest(made(f"{'3'.join(pieces[:at])}4{'3'.join(pieces[at:])}")) != whole


@pytest.mark.parametrize("way", [["-"], ["-c", "import sys; exec(sys.stdin.read())"]], ids=["stdin", "exec"])
def test_hashes_are_the_same_in_every_process(way: list[str]) -> None:
    """Where nobody kept a source, with another order of sets, and whatever was hashed before."""
    programs = {case: program(text) for case, text in COUNTS.items()}
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
        done = subprocess.run(
            [sys.executable, *way], input=text, env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True, text=True, timeout=patience(60), check=True,
        )  # fmt: skip
        found.append(json.loads(done.stdout))
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


def closing_over(value: Any) -> Any:
    return lambda x: (x, value)


def dag(make: Callable[[Any], Any]) -> Any:
    found: Any = make([])
    for _ in range(60):
        found = make([found, found])
    return found


def layers() -> Any:
    found: list[Any] = []
    for _ in range(60):
        found.append(Node(*found))
    return found[-1]


MET: dict[str, Callable[[], Any]] = {
    "an object that holds itself": cycle,
    "a closure over instances of the class": own_instances,
    "a default that holds the function": by_default,
    "classes that name each other": each_other,
    "2⁶⁰ lists": lambda: dag(lambda held: held),
    "2⁶⁰ objects": lambda: dag(lambda held: Node(*held)),
    "layers that hold all before": layers,
    "an array of 80 MB": lambda: closing_over(np.arange(10_000_000)),
    "a tensor of 40 MB": lambda: closing_over(torch.arange(10_000_000, dtype=torch.int32)),
    "a lock": lambda: closing_over(threading.Lock()),
    "a thread": lambda: closing_over(threading.Thread(name="one")),
    "a module": lambda: closing_over(json),
    "a namespace": lambda: closing_over(types.SimpleNamespace(a=1)),
    "an iterator": lambda: closing_over(iter([1, 2])),
    "a view": lambda: closing_over({1: 2}.keys()),
    "memory": lambda: closing_over(memoryview(b"abc")),
    "a tensor on no device": lambda: closing_over(torch.empty(3, device="meta")),
    "a sparse tensor": lambda: closing_over(torch.eye(3).to_sparse()),
    "a complex tensor": lambda: closing_over(torch.ones(2, dtype=torch.complex64).conj()),
    "a scripted module": lambda: torch.jit.script(nn.Sequential(nn.ReLU())),
    "an exception": lambda: closing_over(ValueError("one")),
    "a weak set": lambda: closing_over(__import__("weakref").WeakSet()),
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
