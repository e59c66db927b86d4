"""`d5ray network`: what is in an ONNX file, for people and for programs"""

import json
from pathlib import Path

import numpy as np
import pytest

from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from tests.conftest import d5ray


def written(folder: Path) -> Path:
    network = Network("line")
    network.add_input("x", TensorDescriptor("float32", ("batch", 3)))
    network.add_parameter("w", np.ones((3, 1000), np.float32))
    network.add_node(Node("MatMul", ("x", "w"), ("h",), name="product"))
    network.add_node(Node("Softmax", ("h",), ("y",), {"axis": 1}, name="shares"))
    network.add_output("y")
    network.to_onnx(folder / "line.onnx")
    return folder / "line.onnx"


def test_a_table_has_a_line_for_every_node(tmp_path: Path) -> None:
    done = d5ray("network", str(written(tmp_path)))
    assert (done.code, done.err) == (0, "")
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0] == ["line", "2", "nodes", "3,000", "parameters", "in", "1", "tensor", "(12", "kB)"]
    assert lines[1:] == [
        ["node", "type", "makes", "parameters"],
        ["x", "input", "float32", "(batch,", "3)"],
        ["product", "MatMul", "float32", "(batch,", "1000)", "3,000"],
        ["shares", "Softmax", "float32", "(batch,", "1000)"],
        ["y", "output", "float32", "(batch,", "1000)"],
    ]


@pytest.mark.full
def test_json_has_everything_about_every_node(tmp_path: Path) -> None:
    found = json.loads(d5ray("network", str(written(tmp_path)), "--json").out)
    assert found["inputs"] == {"x": {"type": "float32", "shape": ["batch", 3]}}
    assert found["parameters"] == {"w": [3, 1000]}
    assert found["nodes"][1] == {
        "name": "shares", "type": "Softmax", "domain": "", "reads": ["h"], "attributes": {"axis": 1},
        "makes": {"y": {"type": "float32", "shape": ["batch", 1000]}}, "parameters": 0,
    }  # fmt: skip


def test_a_file_that_is_no_network_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("hello")
    done = d5ray("network", str(tmp_path / "text.onnx"))
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith("error: the file") and "is no ONNX model" in done.err


@pytest.mark.full
def test_two_files_are_told_apart_by_structure_and_values(tmp_path: Path) -> None:
    first = written(tmp_path)
    network = Network.from_onnx(first)
    network.to_onnx(tmp_path / "same.onnx")
    same = d5ray("network", str(first), "--compare", str(tmp_path / "same.onnx"))
    assert (same.code, same.out.splitlines()) == (
        0,
        ["the structure is the same", "all values that both hold under one name are equal"],
    )
    network.replace("shares", Node("Tanh", ("h",), ("y",)))
    network.feed_tensor("w", np.full((3, 1000), 1.5, np.float32))
    network.to_onnx(tmp_path / "other.onnx")
    other = d5ray("network", str(first), "--compare", str(tmp_path / "other.onnx"), "--json")
    report = other.json
    assert (other.code, report["node"], report["other_node"]) == (1, "shares", "shares")
    assert "shares (Softmax), and shares (Tanh)" in report["structure"]
    (row,) = report["values"]
    assert (row["tensor"], row["l1"], row["l2"] ** 2, row["largest"]) == ("w", 1500, pytest.approx(750), 0.5)


@pytest.mark.full
def test_the_stages_of_a_cut_are_a_table(tmp_path: Path) -> None:
    """Balanced or by hand; for people and for programs; what cannot be is one error."""
    file = str(written(tmp_path))
    lines = [line.split() for line in d5ray("network", file, "--stages", "2").out.splitlines()]
    assert lines[0][:5] == ["stage", "from", "to", "operators", "parameters"]
    assert (lines[1][:5], lines[1][-4:]) == (
        ["0", "product", "product", "1", "3,000"],
        ["4", "kB", "to", "1"],
    )
    assert (lines[2][:5], lines[2][-4:]) == (["1", "shares", "shares", "1", "0"], ["4", "kB", "from", "0"])
    (first, second) = json.loads(d5ray("network", file, "--cut", "shares", "--json").out)
    assert (first["flops"], first["sent_to"]) == (3 * 2 * 3 * 1000, [1])
    assert (second["received_bytes"], second["received_from"]) == (4000, [0])
    for wrong, said in (
        (("--cut", "product"), "leaves stage 0 without operators"),
        (("--stages", "2", "--cut", "shares"), "give one of them"),
    ):
        done = d5ray("network", file, *wrong)
        assert (done.code, done.out) == (3, "") and said in " ".join(done.err.split())
