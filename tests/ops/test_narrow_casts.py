"""Casts to types of 8 bits and fewer, in every framework: by the tables of ONNX's Cast"""

import importlib
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

from d5ray.networks.network import Network

NUMBERS = [0.0, -0.0, 1.0625, 0.2, -3.0, 1e6, -1e6, np.inf, -np.inf, np.nan]
# What ONNX's tables say of the last five, [x] > FLT_MAX, −[x], ∞, −∞ and NaN, where it does not saturate.
BEYOND = {
    "float8_e4m3fn": [np.nan] * 5,
    "float8_e4m3fnuz": [np.nan] * 5,
    "float8_e5m2": [np.inf, -np.inf, np.inf, -np.inf, np.nan],
    "float8_e5m2fnuz": [np.nan] * 5,
}
FRAMEWORKS = ("numpy", "torch", "tensorflow")


def run(framework: str, node: onnx.NodeProto, inputs: dict[str, Any]) -> Any:
    """What a network of this node, which makes y, gives."""
    pytest.importorskip(framework)
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    out = onnx.ValueInfoProto()
    out.name = "y"
    model = helper.make_model(
        helper.make_graph([node], "g", values, [out]), opset_imports=[helper.make_opsetid("", 25)]
    )
    network = Network.from_onnx(model)
    executor = importlib.import_module(f"d5ray.frameworks.{framework}").from_onnx(network)
    return executor.inference(inputs)["y"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("kind", BEYOND)
@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("type", ["Cast", "CastLike"])
def test_8_bits_hold_what_onnx_says(framework: str, kind: str, saturate: int, type: str) -> None:
    """What lies beyond the greatest number is that number, or else what the table has; Cast as CastLike."""
    dtype = np.dtype(getattr(ml_dtypes, kind))
    x = np.array(NUMBERS, np.float32)
    if type == "Cast":
        node = helper.make_node(
            "Cast", ["x"], ["y"], to=helper.np_dtype_to_tensor_dtype(dtype), saturate=saturate
        )
        found = run(framework, node, {"x": x})
    else:
        node = helper.make_node("CastLike", ["x", "like"], ["y"], saturate=saturate)
        found = run(framework, node, {"x": x, "like": np.zeros(1, dtype)})
    greatest = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
    beyond = [greatest, -greatest, greatest, -greatest, np.nan] if saturate else BEYOND[kind]
    assert found.dtype == dtype
    expected = [*np.array(NUMBERS[:5], np.float32).astype(dtype).astype(np.float32), *beyond]
    np.testing.assert_array_equal(found.astype(np.float32), np.array(expected, np.float32))


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    ("mode", "expected"),
    [("up", [1.0, 2.0, 2.0, 0.25]), ("down", [1.0, 1.0, 1.0, 0.125]), ("nearest", [1.0, 1.0, 2.0, 0.25])],
)
def test_powers_of_two_are_rounded_as_the_node_says(framework: str, mode: str, expected: list[float]) -> None:
    """1.25 has its nearest power below, 1.5 and 0.2 above: halves of the mantissa go up."""
    node = helper.make_node("Cast", ["x"], ["y"], to=onnx.TensorProto.FLOAT8E8M0, round_mode=mode)
    found = run(framework, node, {"x": np.array([1.0, 1.25, 1.5, 0.2], np.float32)})
    np.testing.assert_array_equal(found.astype(np.float32), expected)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("kind", ["int4", "uint4", "int2", "uint2"])
def test_few_bits_of_an_integer_are_kept(framework: str, kind: str) -> None:
    """The higher ones are left away, whatever wider type holds the numbers; they come back as they are."""
    dtype = np.dtype(getattr(ml_dtypes, kind))
    bits, signed = int(kind[-1]), not kind.startswith("u")
    x = np.arange(-20, 20, dtype=np.int32)
    low = x % 2**bits
    expected = np.where(low >= 2 ** (bits - 1), low - 2**bits, low) if signed else low
    node = helper.make_node("Cast", ["x"], ["y"], to=helper.np_dtype_to_tensor_dtype(dtype))
    found = run(framework, node, {"x": x})
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.astype(np.int32), expected)
    back = helper.make_node("Cast", ["x"], ["y"], to=onnx.TensorProto.FLOAT)
    np.testing.assert_array_equal(run(framework, back, {"x": found}), expected.astype(np.float32))
