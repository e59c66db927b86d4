"""Claims about canonical descriptions: equal meaning, equal JSON; another meaning, another hash."""

import enum
import functools
import importlib.util
import json
import math
import os
import re
import subprocess
import sys
import textwrap
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from d5ray.identity import sources
from d5ray.identity.canonical import canonical, digest
from d5ray.training.optimizers.gradient_descent import SGD, Momentum
from tests.conftest import REPOSITORY
from tests.patience import patience

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


class Pair:
    """An ordinary object."""

    def __init__(self, left: object, right: object = None) -> None:
        self.left = left
        self.right = right
        self._cache = object()


class Slotted:
    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Point:
    x: float


def network(features: int = 1) -> int:
    return features


# -- JSON ------------------------------------------------------------------------------------------------


@given(JSON)
@settings(max_examples=50, deadline=None)
def test_json_data_describe_themselves(data: Any) -> None:
    """canonical is the identity on what JSON can say, and its own fixed point."""
    assert canonical(data) == data
    assert json.loads(json.dumps(canonical(data), allow_nan=False)) == data


@given(st.dictionaries(st.text(), JSON, min_size=2, max_size=5))
@settings(max_examples=50, deadline=None)
def test_the_order_of_keys_does_not_count(data: dict[str, Any]) -> None:
    """A dictionary filled from the other end has the same hash."""
    assert digest(dict(reversed(data.items()))) == digest(data)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, {"float": "nan"}),
        (math.inf, {"float": "inf"}),
        (-math.inf, {"float": "-inf"}),
        (2.0, 2),
        ([0.1, math.nan], [0.1, {"float": "nan"}]),
        ((1, (2, 3)), [1, [2, 3]]),
        ({"b", "a", "c"}, ["a", "b", "c"]),
        (frozenset({3, 1, 2}), [1, 2, 3]),
        ({(2, 1), (1, 2)}, [[1, 2], [2, 1]]),
        (PurePosixPath("/data/mnist"), "/data/mnist"),
        ({"b": {"d": {2, 1}, "c": math.inf}, "a": (PurePosixPath("x"),)},
         {"a": ["x"], "b": {"c": {"float": "inf"}, "d": [1, 2]}}),
        ({2: "two", 1: "one"}, {"1": "one", "2": "two"}),
        (OrderedDict(b=1, a=2), {"a": 2, "b": 1}),
        (math, "math"),
        (len, "builtins.len"),
        (SGD, "d5ray.training.optimizers.gradient_descent.SGD"),
        (SGD(0.5), {"class": "d5ray.training.optimizers.gradient_descent.SGD", "learning_rate": 0.5}),
    ],
)  # fmt: skip
def test_what_json_cannot_say_is_said_in_json(value: object, expected: object) -> None:
    """By hand, for every kind; the text is strict JSON, in which there is no NaN."""
    assert canonical(value) == expected
    assert list(canonical({"v": value})) == ["v"]
    assert json.loads(json.dumps(canonical(value), allow_nan=False)) == expected


DIFFERENT: list[tuple[object, object]] = [
    (1, 2),
    (1, 1.5),
    (math.nan, "nan"),
    (math.inf, -math.inf),
    (2**53, 2**53 + 1),
    (2.0**53, 2.0**53 + 2),
    (1, True),
    (0.1, math.nextafter(0.1, 1)),
    (None, "None"),
    ("a", b"a"),
    ([1, 2], [2, 1]),
    ([], {}),
    ({"a": 1}, {"a": 2}),
    ({"a": 1}, {"b": 1}),
    (b"a", b"b"),
    (bytearray(b"a"), bytearray(b"b")),
    (1j, 2j),
    (range(3), range(4)),
    (deque([1]), deque([2])),
    (defaultdict(int), defaultdict(float)),
    (re.compile("a"), re.compile("a", re.IGNORECASE)),
    (SGD(0.1), SGD(0.2)),
    (Momentum(0.1, 0.9), Momentum(0.1, 0.8)),
    (SGD, Momentum),
    (Pair(1), Pair(2)),
    (Pair(Pair(1)), Pair(Pair(2))),
    (Slotted(1), Slotted(2)),
    (Colour.RED, Colour.BLUE),
    (Point(1.0), Point(2.0)),
    (functools.partial(network, 1), functools.partial(network, 2)),
    (functools.partial(network, features=1), functools.partial(network, features=2)),
    (Point(1.0).__eq__, Point(2.0).__eq__),
    (np.int64(1), np.int64(2)),
    (np.float32(1), np.float32(2)),
    (np.dtype("int32"), np.dtype("int64")),
    (np.arange(3), np.arange(3) + 1),
    (np.zeros((2, 3)), np.zeros((3, 2))),
    (torch.float32, torch.float64),
    (torch.device("cpu"), torch.device("meta")),
    (torch.zeros(2), torch.ones(2)),
    (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
    (torch.zeros(2, 3), torch.zeros(3, 2)),
    (torch.relu, torch.tanh),
]


def shown(value: object) -> str:
    """Its repr without addresses in memory, so that a test has the same name in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


@pytest.mark.parametrize(("one", "other"), DIFFERENT, ids=shown)
def test_another_value_has_another_hash(one: object, other: object) -> None:
    """Also where an object keeps its value elsewhere than in its attributes."""
    assert digest(one) != digest(other)
    assert digest({"part": [one]}) != digest({"part": [other]})


@pytest.mark.parametrize(
    "make",
    [
        lambda: SGD(0.1),
        lambda: Pair([1, {"a": {2, 3}}], Point(0.5)),
        lambda: Slotted(1),
        lambda: functools.partial(network, features=3),
        lambda: np.arange(4.0),
        lambda: np.int64(7),
        lambda: deque([1, 2]),
        lambda: torch.ones(3),
        lambda: nn.Parameter(torch.ones(3, dtype=torch.bfloat16)),
    ],
)
def test_an_equal_value_has_an_equal_hash(make: Callable[[], object]) -> None:
    """Two objects made alike; what a name with an underscore holds does not count."""
    one, other = make(), make()
    assert one is not other
    assert digest(one) == digest(other)


def test_a_network_given_as_it_is_counts_with_its_parameters() -> None:
    """Equal layers and equal parameters are equal; one weight or one layer less are not."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    copy = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    assert digest(copy) != digest(network)
    copy.load_state_dict(network.state_dict())
    assert digest(copy) == digest(network)
    assert digest(nn.Sequential(copy[0])) != digest(nn.Sequential(copy[0], nn.Tanh()))


def test_a_fingerprint_stands_for_the_object() -> None:
    """Nothing else of an object that has one is looked at."""

    class Data:
        def __init__(self, fingerprint: str, note: str) -> None:
            self.fingerprint = fingerprint
            self.note = note

    assert digest(Data("f", "one")) == digest(Data("f", "two")) != digest(Data("g", "one"))


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_hashes_are_the_same_in_every_process(hash_seed: str) -> None:
    """Sets and dictionaries iterate in other orders there, and objects lie elsewhere."""
    text = (
        "{'set': {'a', 'b', 'c', ('x', 1)}, 'frozen': frozenset('hello'), 'nan': float('nan'), "
        "'rule': Momentum(0.1), 'class': SGD, 'partial': functools.partial(Momentum, momentum=0.5), "
        "'array': np.arange(5), 'nested': {'z': {'y': (1, 2)}, 'path': PurePosixPath('a/b')}}"
    )
    preamble = (
        "import functools; import numpy as np; from pathlib import PurePosixPath; "
        "from d5ray.identity.canonical import digest; "
        "from d5ray.training.optimizers.gradient_descent import SGD, Momentum; "
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{preamble}print(digest({text}))"],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=True,
    )
    here: dict[str, Any] = {}
    exec(f"{preamble}found = digest({text})", here)
    assert done.stdout.strip() == here["found"]


# -- the user's own code ---------------------------------------------------------------------------------


Load = Callable[[str, str], ModuleType]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """A module of this name, from a file with this text."""

    def call(name: str, text: str) -> ModuleType:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        file = folder / "mine.py"
        file.write_text(textwrap.dedent(text))
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return call


MINE = """
    class Rule:
        rate = 0.1

        def step(self):
            return self.rate

    def model():
        return 1
"""


@pytest.mark.parametrize("thing", ["Rule", "model"])
def test_an_edit_of_a_users_source_shows(load: Load, thing: str) -> None:
    """A hyperparameter in a class, or a constant in a function, that is changed in the file."""
    before = getattr(load("mine", MINE), thing)
    old = digest(before)
    edited = MINE.replace("0.1", "0.2").replace("return 1", "return 2")
    assert digest(getattr(load("mine", edited), thing)) != old
    assert digest(getattr(load("mine", MINE), thing)) == old


@pytest.mark.parametrize("thing", ["Rule", "model"])
def test_the_name_of_a_users_module_does_not_count(load: Load, thing: str) -> None:
    """The same file under the names that it has as a script, as a module and as a recipe."""
    hashes = {digest(getattr(load(name, MINE), thing)) for name in ("mine", "yours", "d5ray.recipes.mine")}
    assert len(hashes) == 1


def test_an_object_of_a_users_class_counts_with_source_and_attributes(load: Load) -> None:
    """Either alone makes another description, and they do not mix."""
    module = load("mine", MINE)
    rule, tuned = module.Rule(), module.Rule()
    tuned.period = 3
    plain = canonical(rule)
    assert plain == {"class": canonical(module.Rule)}
    assert canonical(tuned) == {**plain, "period": 3}
    edited = load("mine", MINE.replace("0.1", "0.2")).Rule()
    edited.period = 3
    assert {**canonical(edited), "class": plain["class"]} == {**plain, "period": 3} != canonical(edited)


def test_a_class_of_d5ray_counts_with_its_name_alone() -> None:
    """A comment in the library does not make runs incomparable."""
    assert canonical(Momentum) == "d5ray.training.optimizers.gradient_descent.Momentum"


USING = """
    DEPTH = 20
    UNUSED = 1

    class Base:
        def width(self):
            return 4

    def half(x):
        return x / 2

    class Net(Base):
        def forward(self, x):
            return half(x) * DEPTH

    def made(depth):
        def model(scale=2):
            return depth * scale
        return model

    def rate(value=0.5):
        return value
"""


@pytest.mark.parametrize(
    ("old", "new", "shows"),
    [
        ("DEPTH = 20", "DEPTH = 44", True),
        ("return 4", "return 5", True),
        ("x / 2", "x / 3", True),
        ("half(x) * DEPTH", "half(x)", True),
        ("UNUSED = 1", "UNUSED = 2", False),
        ("value=0.5", "value=0.6", False),
    ],
)
def test_what_a_users_class_uses_counts(load: Load, old: str, new: str, shows: bool) -> None:
    """A constant, a base and a function of the same file that the class uses; not what it does not use."""
    before, after = (digest(load("mine", text).Net) for text in (USING, USING.replace(old, new)))
    assert (before != after) == shows


def test_what_a_function_closes_over_counts(load: Load) -> None:
    """Two models from one factory, as the source alone cannot tell them apart; and a changed default."""
    module = load("mine", USING)
    assert digest(module.made(20)) == digest(module.made(20)) != digest(module.made(44))
    assert digest(module.made(SGD(0.1))) != digest(module.made(SGD(0.2)))
    before = digest(module.rate)
    module.rate.__defaults__ = (0.7,)
    assert digest(module.rate) != before


def test_private_data_count_and_caches_do_not() -> None:
    """`self._rate` is a number that a user hides; `self._cache` is none."""

    def rule(rate: float) -> Pair:
        made = Pair(1)
        vars(made)["_rate"] = rate
        return made

    assert digest(rule(0.1)) == digest(rule(0.1)) != digest(rule(0.2))


def test_what_is_installed_counts_with_its_name() -> None:
    """PyTorch's and Python's own classes and functions; their versions are in the environment."""
    assert canonical(nn.Linear) == "torch.nn.modules.linear.Linear"
    assert canonical(textwrap.dedent) == "textwrap.dedent"


@pytest.mark.parametrize(("beside", "own"), [("solver-1.0.dist-info", False), ("notes", True)])
def test_packages_beside_their_metadata_are_installed_wherever_they_lie(
    beside: str, own: bool, tmp_path: Path
) -> None:
    """In folders of PYTHONPATH too, as clusters have them: what lies there is no code of the user's."""
    (tmp_path / "solver.py").write_text("def solve():\n    return 1\n")
    (tmp_path / beside).mkdir()
    program = "import solver; from d5ray.identity.canonical import canonical; print(canonical(solver.solve))"
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": f"{tmp_path}:{REPOSITORY}"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (done.stdout.strip() != "solver.solve") == own


def test_frameworks_are_known_by_name_where_they_were_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """In their own checkout no folder of packages is around them, and all of PyTorch would be read."""
    monkeypatch.setattr(sources, "_installed", lambda file: False)
    assert not sources.is_own(nn.Linear)
    assert not sources.is_own(np.linalg.norm)


LOADED_LATER = """
import d5ray as d5
from d5ray.identity.canonical import digest

def made():
    return d5.Experiment, d5.optimizers.Momentum

before = digest(made)
made()  # d5ray imports a name when it is first asked for
print(digest(made) == before)
"""


def test_what_d5ray_has_loaded_by_now_does_not_count() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED_LATER], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
