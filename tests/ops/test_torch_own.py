"""Operators under PyTorch: where its own functions are used, and on which device"""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.geometry.interpolation import axis_plans
from d5ray.ops.torch import FACTORIES
from d5ray.ops.torch.resizing import _by_interpolate, _by_matrices
from d5ray.ops.torch.types import array_of, tensor_of
from tests.ops.running import known, place

FLOATS = [np.ones((2, 3), np.float32), np.ones((2, 3), np.float32), np.ones(2, np.float32)]
OWN: dict[str, tuple[int, dict[str, Any], Any]] = {
    "Relu": (1, {}, torch.relu), "Tanh": (1, {}, torch.tanh), "Sigmoid": (1, {}, torch.sigmoid),
    "Gelu": (1, {}, F.gelu), "HardSwish": (1, {}, F.hardswish), "Swish": (1, {}, F.silu),
    "Selu": (1, {}, torch.selu), "Add": (2, {}, torch.add), "Sub": (2, {}, torch.sub),
    "Mul": (2, {}, torch.mul), "Div": (2, {}, torch.div), "Pow": (2, {}, torch.pow),
    "Max": (2, {}, torch.maximum), "Sum": (2, {}, torch.add), "Exp": (1, {}, torch.exp),
    "MatMul": (2, {}, torch.matmul), "Gemm": (3, {"transB": 1}, F.linear), "Equal": (2, {}, torch.eq),
    "Abs": (1, {}, torch.abs), "MeanSquaredError": (2, {}, F.mse_loss),
}  # fmt: skip


def test_what_is_built_is_pytorchs_own_function() -> None:
    """Nothing is called around it where the types of the inputs are known."""
    for kind, (count, attributes, function) in OWN.items():
        context = known(place(kind, FLOATS[:count], attributes), FLOATS[:count])
        assert FACTORIES[kind](context) is function, kind


class Calls(TorchFunctionMode):
    """The names of PyTorch's functions that are called meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(function.__name__)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(("clip", "times"), [({}, 1), ({"clip": 3.0}, 0)])
@pytest.mark.parametrize(
    ("kind", "name", "gates"), [("RNN", "rnn_tanh", 1), ("GRU", "gru", 3), ("LSTM", "lstm", 4)]
)
def test_a_kernel_is_called_where_it_can_be(kind: str, name: str, gates: int, clip: Any, times: int) -> None:
    """Once for all steps, also where lengths leave nothing out; not where activations are clipped."""
    arrays = [np.ones(shape) for shape in ((4, 3, 2), (1, gates * 5, 2), (1, gates * 5, 5), (1, gates * 10))]
    for lengths in ([], [np.full(3, 4, np.int32)]):
        given: list[np.ndarray[Any, Any]] = [*arrays, *lengths]
        context = known(place(kind, given, {"linear_before_reset": 1, **clip}, outputs=2), given)
        with Calls() as calls:
            FACTORIES[kind](context)(*map(tensor_of, given))
        assert calls.names.count(name) == times


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [("Constant", {"value_int": 3}), ("RandomNormal", {"shape": (2,)}), ("RandomUniform", {"shape": (2,)})],
)
def test_what_is_made_of_nothing_is_made_on_the_default_device(kind: str, attributes: dict[str, Any]) -> None:
    """Of which "meta" is one that every machine has."""
    built = FACTORIES[kind](place(kind, [], attributes))
    assert built().device.type == "cpu"
    with torch.device("meta"):
        assert built().device.type == "meta"


@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_pytorchs_interpolation_is_used_where_it_is_the_same(
    mode: str, rounding: str, coordinates: str
) -> None:
    """It and the matrices, two ways of computing, agree for many sizes of images."""
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
    context, used = place("Resize", [], attributes), 0
    for size, target in ((3, 6), (4, 12), (5, 3), (7, 4), (2, 8), (4, 1), (1, 4), (6, 9), (5, 40)):
        x = torch.randn(2, 3, size, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(size))
        plans = axis_plans(context, x.shape, None, None, [2, 3, target, 4])
        built = _by_interpolate(context, plans, tuple(x.shape))
        if built is not None:
            used += 1
            torch.testing.assert_close(built(x), _by_matrices(context, plans)(x), rtol=1e-9, atol=1e-9)
    assert used or mode == "nearest" or coordinates == "asymmetric"


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "uint16", "bool"])
def test_arrays_and_tensors_become_each_other(dtype: str) -> None:
    """Of every type that both have, bit by bit; arrays without axes and of other orders too."""
    x = np.array([[0, 1, 3], [5, 0, 2]]).astype(TensorDescriptor(dtype).dtype)
    for array in (x, x.T, x[0, 1], x[:, ::2], x[:0]):
        found = array_of(tensor_of(np.asarray(array)))
        assert found.dtype == array.dtype and found.shape == array.shape
        np.testing.assert_array_equal(found, array)
