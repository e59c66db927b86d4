"""What a checkpoint keeps of an object: everything that is its own, exactly, and in the places it was in"""

import random
import threading
from collections import Counter, deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

import d5ray as d5
from d5ray.distributed.checkpoints.packed import Packed
from d5ray.distributed.checkpoints.state import pack, unpack_into
from d5ray.errors import ConfigurationError, StorageError
from d5ray.metrics.record.tensor_file import parsed, pieces
from tests.beside_kits import needs_kit

LIKE = torch.zeros(1)


class Thing(SimpleNamespace):
    """An object of the user's own, with any attributes."""


def through_a_file(given: Thing, fresh: Thing) -> Thing:
    packed = pack(given, "thing")
    written = np.frombuffer(b"".join(pieces(packed.arrays, "")), np.uint8)
    unpack_into(fresh, Packed(packed.data, parsed(written, "file")[0]), LIKE, "thing")
    return fresh


numbers = st.integers() | st.floats(allow_nan=False) | st.booleans() | st.none() | st.text(max_size=4)
values = st.recursive(
    numbers,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.integers() | st.text(max_size=3) | st.tuples(st.integers()), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(values)
def test_plain_values_come_back_equal_and_of_the_same_types(value: Any) -> None:
    found = through_a_file(Thing(value=value), Thing()).value
    assert repr(found) == repr(value)


@given(
    arrays_of.arrays(
        st.sampled_from(["float32", "float64", "float16", "int64", "uint8", "bool"]),
        arrays_of.array_shapes(min_dims=0, max_dims=3, max_side=4),
    )
)
def test_arrays_and_tensors_come_back_bit_for_bit(array: np.ndarray[Any, Any]) -> None:
    tensor = torch.tensor(array)
    given = Thing(array=array, tensor=tensor, half=tensor.bfloat16())
    found = through_a_file(given, Thing())
    assert (found.array.dtype, found.array.shape) == (array.dtype, array.shape)
    assert found.array.tobytes() == array.tobytes()
    assert (found.tensor.dtype, found.half.dtype) == (tensor.dtype, torch.bfloat16)
    assert found.tensor.numpy().tobytes() == array.tobytes()
    assert found.half.reshape(-1).view(torch.uint8).equal(given.half.reshape(-1).view(torch.uint8))


def test_arrays_that_are_there_are_filled_in_place() -> None:
    """So that a view, such as one into a shared buffer, still is one afterwards."""
    buffer = torch.zeros(10)
    fresh = Thing(part=buffer[2:5], slots={"a": np.zeros(2)})
    inner = fresh.slots["a"]
    through_a_file(Thing(part=torch.tensor([1.0, 2.0, 3.0]), slots={"a": np.ones(2)}), fresh)
    assert buffer.tolist() == [0, 0, 1, 2, 3, 0, 0, 0, 0, 0]
    assert inner.tolist() == [1, 1]


def test_one_array_in_two_places_stays_one_and_two_stay_two() -> None:
    shared = np.array([1.0, 2.0])
    fresh = Thing(first=np.zeros(2), second=np.zeros(2), third=np.zeros(2))
    fresh.third = fresh.second  # in the object made anew they are one
    found = through_a_file(Thing(first=shared, second=shared, third=np.array([3.0, 4.0])), fresh)
    assert found.first is found.second
    assert (found.first.tolist(), found.third.tolist()) == ([1, 2], [3, 4])


def test_containers_and_objects_keep_their_kind_and_place() -> None:
    value = Thing(tally=Counter({3: 2}), recent=deque([1, 2]), seen={4}, fixed=frozenset({5}))
    fresh = Thing(inner=Thing(count=0))
    inner = fresh.inner
    found = through_a_file(Thing(**vars(value), inner=Thing(count=7, more=[1])), fresh)
    assert found.inner is inner and vars(inner) == {"count": 7, "more": [1]}
    del found.inner
    assert vars(found) == vars(value)
    assert [type(each) for each in vars(found).values()] == [Counter, deque, set, frozenset]


@pytest.mark.parametrize("bits", [np.random.PCG64, np.random.MT19937, np.random.Philox])
def test_generators_go_on_where_they_were(bits: Any) -> None:
    generator, plain = np.random.Generator(bits(5)), random.Random(5)
    generator.standard_normal(3), plain.gauss(0, 1)
    fresh = Thing(generator=np.random.Generator(bits(0)), plain=random.Random(0))
    held = fresh.generator
    through_a_file(Thing(generator=generator, plain=plain), fresh)
    assert held.standard_normal(4).tolist() == generator.standard_normal(4).tolist()
    assert fresh.plain.gauss(0, 1) == plain.gauss(0, 1)


@pytest.mark.parametrize(("name", "value"), [("lock", threading.Lock()), ("objects", np.array([{}]))])
def test_what_cannot_be_kept_is_named(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"thing.{name}.* which a checkpoint cannot keep"):
        pack(Thing(**{name: value}), "thing")


@needs_kit("parallel")
def test_a_class_is_known_by_its_first_name() -> None:
    """So an object of a class that was renamed since fits, and one of another class does not."""
    GPipe, OneFOneB = d5.pipelines.GPipe, d5.pipelines.OneFOneB
    given = Thing(schedule=GPipe(), other=Thing())
    packed = pack(given, "thing")
    assert packed.data["schedule"] == {"kept": "FillDrain"}
    assert packed.data["other"] == {"object": {}, "class": "Thing"}
    unpack_into(Thing(schedule=GPipe(), other=Thing()), packed, LIKE, "thing")
    with pytest.raises(StorageError, match=r"thing\.schedule is a FillDrain, but here stands OneFOneB\(\)"):
        unpack_into(Thing(schedule=OneFOneB(), other=Thing()), packed, LIKE, "thing")
    with pytest.raises(StorageError, match=r"thing\.other is a Thing, but here stands None"):
        unpack_into(Thing(schedule=GPipe(), other=None), packed, LIKE, "thing")
