"""Networks of ONNX files, old and new: read, converted and written, they compute what they did before"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from d5ray.errors import ConfigurationError
from d5ray.networks.difference import structural_difference
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

Array = np.ndarray[Any, Any]
SHIPPED = Path(onnx.__file__).parent / "backend" / "test" / "data"
NAMED = ("inception_v1", "resnet50", "shufflenet")


def tensors(folder: Path, kind: str) -> list[Array]:
    count = len(list(folder.glob(f"{kind}_*.pb")))
    return [numpy_helper.to_array(onnx.load_tensor(folder / f"{kind}_{place}.pb")) for place in range(count)]


@pytest.mark.parametrize("name", NAMED)
def test_all_shapes_of_well_known_networks_are_found(name: str) -> None:
    """As ONNX's zoo has them, of operator set 9; the values are made by nodes."""
    network = Network.from_onnx(SHIPPED / "light" / f"light_{name}.onnx")
    assert [each for each in network.descriptors.values() if each.shape is None or None in each.shape] == []
    assert all(each.shape is not None and each.shape[:2] == (1, 1000) for each in network.outputs.values())


def test_a_network_that_is_written_and_read_again_is_the_same() -> None:
    network = Network("all kinds")
    network.add_input("x", TensorDescriptor("float32", ("batch", 4)))
    for name in ("scale", "bias"):
        network.add_parameter(name, np.ones(4, np.float32))
    for name in ("mean", "variance"):
        network.add_state(name, np.ones(4, np.float32))
    network.add_constant("two", np.float32(2))  # of a floating-point type, and not trained
    network.add_node(
        Node(
            "BatchNormalization",
            ("x", "scale", "bias", "mean", "variance"),
            ("a", "mean_next", "variance_next"),
            {"training_mode": 1, "epsilon": 1e-3},
            "norm",
        )
    )
    network.add_node(Node("Mul", ("a", "two"), ("b",), name="double"))
    network.add_node(Node("Clip", ("b", "", "two"), ("scores",), name="clip"))
    network.add_output("scores")
    network.add_loss("MeanSquaredError")
    again = Network.from_onnx(network.to_onnx().SerializeToString())
    assert structural_difference(network, again) is None
    assert [str(node) for node in again.nodes] == [str(node) for node in network.nodes]
    for kind in ("parameters", "constants", "state_values"):
        ours, theirs = getattr(network, kind), getattr(again, kind)
        assert list(ours) == list(theirs)
        assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert (again.name, dict(again.inputs), dict(again.outputs)) == (
        network.name,
        dict(network.inputs),
        dict(network.outputs),
    )
    assert dict(again.state) == {"mean": "mean_next", "variance": "variance_next"}
    assert again.nodes[0].attributes["epsilon"] == np.float32(1e-3)


def model(*nodes: onnx.NodeProto, opset: int, values: dict[str, Array], shape: list[int]) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=4)


def test_what_only_decides_is_no_parameter() -> None:
    """Clip's bounds, Dropout's ratio, running statistics: of a floating-point type, and not trained."""
    values = {name: np.ones(3, np.float32) for name in ("scale", "bias", "mean", "variance")}
    values |= {"low": np.float32(0), "high": np.float32(6), "ratio": np.float32(0.5)}  # type: ignore[dict-item]
    network = Network.from_onnx(
        model(
            helper.make_node("BatchNormalization", ["x", "scale", "bias", "mean", "variance"], ["a"]),
            helper.make_node("Clip", ["a", "low", "high"], ["b"]),
            helper.make_node("Dropout", ["b", "ratio"], ["y"]),
            opset=15,
            values=values,
            shape=[2, 3],
        )
    )
    assert list(network.parameters) == ["scale", "bias"]
    assert set(network.constants) == {"mean", "variance", "low", "high", "ratio"}


def test_nodes_without_names_or_with_one_name_get_names_of_their_own() -> None:
    network = Network.from_onnx(
        model(
            helper.make_node("Relu", ["x"], ["a"]),
            helper.make_node("Relu", ["a"], ["b"]),
            helper.make_node("Tanh", ["b"], ["c"], name="same"),
            helper.make_node("Tanh", ["c"], ["y"], name="same"),
            opset=20,
            values={},
            shape=[2],
        )
    )
    assert [node.name for node in network.nodes] == ["Relu", "Relu_2", "same", "same_2"]


def test_a_file_is_written_in_the_oldest_operator_set_that_means_the_same() -> None:
    network = Network()
    network.add_input("x", TensorDescriptor("float32", (2, 3)))
    network.add_node(Node("Relu", ("x",), ("y",)))
    network.add_output("y")
    assert network.to_onnx().opset_import[0].version == 21
    network.replace("Relu", Node("Swish", ("x",), ("y",)))  # which there is since 24
    assert network.to_onnx().opset_import[0].version == 24
    network.replace("Relu", Node("Cast", ("x",), ("y",), {"to": TensorProto.FLOAT8E8M0}))  # since 24 too
    assert network.to_onnx().opset_import[0].version == 24


def test_a_model_that_no_conversion_helps_is_refused_with_the_reason() -> None:
    old = model(helper.make_node("Split", ["x"], ["y", "z"]), opset=1, values={}, shape=[2, 4])
    with pytest.raises(ConfigurationError, match=r"from ONNX's operator set 1 to 28.*Split"):
        Network.from_onnx(old)
