"""The array operators under the stand-in for CuPy, which refuses what CuPy does: they keep to its arrays"""

import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.narrow import cast_to
from d5ray.ops.arrays.special import _functions
from tests.gpu.over_stand_in import STAND_IN
from tests.gpu.test_stand_in import no_cupy
from tests.ops.onnx_cases import one_node
from tests.ops.operator_rows import ROWS
from tests.ops.running import of_arrays

pytestmark = no_cupy


@pytest.fixture(scope="module")
def cupy() -> Iterator[Any]:
    """The stand-in, for this file alone: stricter than CuPy, whose arrays find their own functions."""
    sys.path.insert(0, str(STAND_IN))
    _functions.cache_clear()
    module = importlib.import_module("cupy")
    del module.ndarray.__array_function__  # by which NumPy's functions would take its arrays
    yield module
    sys.path.remove(str(STAND_IN))
    _functions.cache_clear()
    for name in [each for each in sys.modules if each.partition(".")[0] in ("cupy", "cupyx")]:
        del sys.modules[name]


def places() -> dict[str, list[tuple[NodeContext, list[Any]]]]:
    """All node contexts and inputs of the table and of ONNX's cases, by operator type."""
    found: dict[str, list[tuple[NodeContext, list[Any]]]] = {}
    for row in ROWS:
        found.setdefault(row.type, []).append((row.context, row.drawn(np.float64)))
    for case in one_node():
        found.setdefault(case.node.type, []).append((case.context, list(case.inputs)))
    return found


PLACES = places()


@pytest.mark.parametrize("kind", sorted(PLACES))
def test_it_computes_in_the_given_array_module(kind: str, cupy: Any) -> None:
    """Outputs and gradients are NumPy's, bit for bit, and arrays of the module; nothing leaves it unasked."""
    for context, inputs in PLACES[kind]:
        differentiable = kind != "RoiAlign" or context.attribute("mode") != "max"
        if not differentiable:
            with pytest.raises(ConfigurationError, match="no gradient where mode is max"):
                of_arrays(context, inputs)
        expected, found = (
            of_arrays(replace(context, random=np.random.default_rng(3)), inputs, differentiable, xp)
            for xp in (np, cupy)
        )
        for own, other in zip(chain(*expected), chain(*found), strict=True):
            kinds = [None if each is None else (each.dtype, each.shape) for each in (own, other)]
            assert kinds[0] == kinds[1], context.node
            np.testing.assert_array_equal(np.asarray(other), np.asarray(own))


def test_the_borders_are_guarded(cupy: Any) -> None:
    """What CuPy refuses is refused: becoming NumPy's, mixing with it, types that it has no elements of, and
    most functions at places."""
    x = cupy.asarray(np.ones(2))
    for crossing in (lambda: np.asarray(x), lambda: x + np.ones(2), lambda: cupy.exp(np.ones(2))):
        with pytest.raises(TypeError):
            crossing()
    with pytest.raises(NotImplementedError):
        cupy.multiply.at(x, (cupy.asarray([0]),), x[:1])
    with pytest.raises(ConfigurationError, match="CuPy has no elements of type float8_e5m2"):
        cast_to(cupy, x, np.dtype(ml_dtypes.float8_e5m2))
    assert isinstance(x.sum(), cupy.ndarray) and isinstance(x[0], cupy.ndarray)
