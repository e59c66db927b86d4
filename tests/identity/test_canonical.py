"""Claims about canonical descriptions: equal meaning, equal JSON; another meaning, another hash."""

import enum
import functools
import json
import math
import re
import textwrap
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
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
from tests.conftest import REPOSITORY, python

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
        (textwrap.dedent, "textwrap.dedent"),
        (nn.Linear, "torch.nn.modules.linear.Linear"),
        (SGD, "d5ray.training.optimizers.gradient_descent.SGD"),
        (SGD(0.5), {"class": "d5ray.training.optimizers.gradient_descent.SGD", "learning_rate": 0.5}),
    ],
)  # fmt: skip
def test_what_json_cannot_say_is_said_in_json(value: object, expected: object) -> None:
    """By hand, for every kind; the text is strict JSON, in which there is no NaN."""
    assert canonical(value) == expected
    assert list(canonical({"v": value})) == ["v"]
    assert json.loads(json.dumps(canonical(value), allow_nan=False)) == expected


def test_what_holds_itself_is_said_by_how_far_up_it_stands() -> None:
    """Wherever all of it stands: equal meaning."""
    held: list[Any] = []
    held.append([held])
    assert canonical(held) == [[{"cycle": 2}]] and canonical({"a": held}) == {"a": [[{"cycle": 2}]]}


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


# -- what is installed -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("beside", "own"), [("solver-1.0.dist-info", False), ("notes", True)])
def test_packages_beside_their_metadata_are_installed_wherever_they_lie(
    beside: str, own: bool, tmp_path: Path
) -> None:
    """In folders of PYTHONPATH too, as clusters have them: what lies there is no code of the user's."""
    (tmp_path / "solver.py").write_text("def solve():\n    return 1\n")
    (tmp_path / beside).mkdir()
    program = "import solver; from d5ray.identity.canonical import canonical; print(canonical(solver.solve))"
    done = python("-c", program, env={"PYTHONPATH": f"{tmp_path}:{REPOSITORY}"})
    assert (done.out.strip() != "solver.solve") == own


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
    assert python("-c", LOADED_LATER).out.strip() == "True"
