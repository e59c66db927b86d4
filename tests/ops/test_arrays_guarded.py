"""The array operators under an array module with CuPy's borders: they keep to the one they are given"""

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays import OPERATORS
from d5ray.ops.arrays.special import _functions
from tests.ops.guarded_arrays import GuardedArray, array_module, special
from tests.ops.onnx_cases import one_node
from tests.ops.operator_rows import ROWS


@pytest.fixture(autouse=True)
def scipy_for_cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What CuPy has of SciPy."""
    monkeypatch.setitem(sys.modules, "cupyx.scipy.special", special)
    _functions.cache_clear()
    yield
    _functions.cache_clear()


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
def test_it_computes_in_the_given_array_module(kind: str) -> None:
    """Outputs and gradients are NumPy's, bit for bit, and arrays of the module; nothing leaves it unasked."""
    operator = OPERATORS[kind]
    for context, inputs in PLACES[kind]:
        results = []
        for xp in (np, array_module):
            here: Any = replace(context, random=Drawn(xp))
            moved = [None if x is None else xp.asarray(x) for x in inputs]
            outputs = operator.forward(xp, here, moved)
            given = [
                xp.asarray(np.cos(np.arange(y.size)).reshape(y.shape)).astype(y.dtype)
                for y in outputs[: len(context.node.outputs)]
            ]
            results.append([*outputs, *_gradients(xp, operator, here, given, moved, outputs)])
        for expected, found in zip(*results, strict=True):
            if expected is None:
                assert found is None
                continue
            assert isinstance(found, GuardedArray) and found.dtype == expected.dtype, (context.node, found)
            np.testing.assert_array_equal(found.values, expected)


class Drawn:
    """The same numbers for every array module."""

    def __init__(self, xp: Any) -> None:
        self.xp, self.generator = xp, np.random.default_rng(3)

    def random(self, shape: Any) -> Any:
        return self.xp.asarray(self.generator.random(shape))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.generator, name)


def _gradients(xp: Any, operator: Any, here: NodeContext, *arrays: Any) -> Any:
    """None, where an operator has a mode without one, and says so."""
    if here.node.type == "RoiAlign" and here.attribute("mode") == "max":
        with pytest.raises(ConfigurationError, match="no gradient where mode is max"):
            operator.backward(xp, here, *arrays)
        return []
    return operator.backward(xp, here, *arrays)


def test_the_borders_are_guarded() -> None:
    """What CuPy refuses is refused: becoming NumPy's, mixing with it, and most functions at places."""
    x = array_module.asarray(np.ones(2))
    for crossing in (lambda: np.asarray(x), lambda: x + np.ones(2), lambda: array_module.exp(np.ones(2))):
        with pytest.raises(TypeError):
            crossing()
    with pytest.raises(NotImplementedError):
        array_module.multiply.at(x, (array_module.asarray([0]),), x[:1])
    assert isinstance(x.sum(), GuardedArray) and isinstance(x[0], GuardedArray)
