"""Claims about ONNX files that are broken: each is one clear error, and nothing else is read or run"""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from d5ray.errors import ConfigurationError, D5Error
from d5ray.networks.network import Network

FLOAT = TensorProto.FLOAT


def model(
    *nodes: onnx.NodeProto,
    initializers: tuple[TensorProto, ...] = (),
    outputs: tuple[str, ...] = ("y",),
    opset: int = 21,
    **more: Any,
) -> onnx.ModelProto:
    """A model with an input x (batch, 3), of float32."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        list(initializers),
    )
    imports = [
        helper.make_opsetid("", opset),
        *([helper.make_opsetid("own", 1)] if "functions" in more else []),
    ]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, **more)


def node(type: str, inputs: str, outputs: str, name: str = "", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(type, inputs.split(), outputs.split(), name=name, **attributes)


def dense() -> onnx.ModelProto:
    return model(
        node("MatMul", "x w", "y", "product"),
        initializers=(numpy_helper.from_array(np.ones((3, 2), np.float32), "w"),),
    )


def external(location: str, offset: str = "", length: str = "") -> onnx.ModelProto:
    """The same, whose w stands in a data file."""
    made = dense()
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value:
            tensor.external_data.add(key=key, value=value)
    return made


def refusal(source: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        Network.from_onnx(source)
    return str(caught.value)


def changed(change: Callable[[onnx.GraphProto], object]) -> Callable[[], onnx.ModelProto]:
    """A model of one node, whose graph is changed."""

    def made() -> onnx.ModelProto:
        found = dense()
        change(found.graph)
        return found

    return made


def claiming(*dims: int) -> Callable[[], onnx.ModelProto]:
    """The model, whose w claims these extents, and has six elements."""

    def claim(graph: onnx.GraphProto) -> None:
        del graph.initializer[0].dims[:]
        graph.initializer[0].dims.extend(dims)

    return changed(claim)


def too_few_numbers(graph: onnx.GraphProto) -> None:
    """Five for six elements, as numbers instead of bytes."""
    graph.initializer[0].ClearField("raw_data")
    graph.initializer[0].float_data.extend([1.0] * 5)


def function(name: str, *nodes: onnx.NodeProto) -> onnx.FunctionProto:
    return helper.make_function(
        "own", name, ["a"], ["b"], list(nodes), [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    )


def calls(name: str, count: int) -> list[onnx.NodeProto]:
    """a -> count calls of a function, one after another -> b"""
    names = ["a", *(f"t{place}" for place in range(1, count)), "b"]
    return [node(name, names[place], names[place + 1], domain="own") for place in range(count)]


def calling(*functions: onnx.FunctionProto) -> onnx.ModelProto:
    """A model of one call of the first of these functions."""
    return model(node(functions[0].name, "x", "y", domain="own"), functions=functions)


def growing() -> onnx.ModelProto:
    """Ten functions, each of which calls the next ten times."""
    functions = [function(f"f{place}", *calls(f"f{place + 1}", 10)) for place in range(10)]
    return calling(*functions, function("f10", node("Relu", "a", "b")))


def newer() -> onnx.ModelProto:
    made = model(node("Relu", "x", "y"))
    made.ir_version = 99
    return made


def missing() -> onnx.ModelProto:
    inner = (node("StringConcat", "a", "c", "inner"), node("Their", "c", "b", "other", domain="own"))
    nodes = (node("ImageDecoder", "x", "c", "picture"), node("f", "c", "y", domain="own"))
    return model(*nodes, functions=[function("f", *inner)])


REFUSED: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "no such file": (lambda: "/no/such/file.onnx", ("'/no/such/file.onnx' cannot be read: No such file",)),
    "a folder": (lambda: "/", ("no ordinary file",)),
    "a device": (lambda: "/dev/zero", ("no ordinary file",)),
    "a number": (lambda: 3, ("cannot be read from a int",)),
    "text": (lambda: b"hello, world", ("no ONNX model",)),
    "nothing": (lambda: b"", ("no ONNX model",)),
    "data files of no folder": (lambda: external("w.bin"), ("give the path of the ONNX file",)),
    "fewer elements": (claiming(3, 3), ("the tensor 'w'",)),
    "far fewer elements": (claiming(2**62, 2**62), ("the tensor 'w'",)),
    "many extents": (claiming(*(2**63 - 1,) * 100), ("the tensor 'w'",)),
    "negative extents": (claiming(-1, 2), ("the tensor 'w'",)),
    "fewer numbers": (
        changed(too_few_numbers), ("claims float (3, 2), and does not have as many elements",),
    ),
    "calls in a circle": (
        lambda: calling(function("f", *calls("g", 1)), function("g", *calls("f", 1))), ("calls itself",),
    ),
    "calls without end": (growing, ("10,000,000,000 nodes when its functions are inlined",)),
    "operators that are missing": (
        missing,
        ("3 operator types", "ImageDecoder (at 'picture'), StringConcat (at 'inner'), own.Their"),
    ),
    "a set that is not known": (
        lambda: model(node("Relu", "x", "y"), opset=99), ("operator set 99, and d5ray knows 1 to 28",),
    ),
    "a format that is not known": (newer, ("format 99",)),
    "a tensor made twice": (
        lambda: model(node("Relu", "x", "y", "a"), node("Tanh", "x", "y", "b")), ("'y' is made twice",),
    ),
    "a tensor made never": (lambda: model(node("Relu", "z", "y", "a")), ("a (Relu) reads the tensor 'z'",)),
    "a circle": (
        lambda: model(node("Add", "x b", "y", "first"), node("Relu", "y", "b", "second")),
        ("circle", "first (Add) -> second (Relu) -> first (Add)"),
    ),
    "a value twice": (
        changed(lambda graph: graph.initializer.append(graph.initializer[0])), ("the tensor 'w' twice",),
    ),
    "an input twice": (changed(lambda graph: graph.input.append(graph.input[0])), ("the input 'x' twice",)),
    "shapes that do not fit": (
        changed(lambda graph: graph.node.append(node("MatMul", "y w", "z", "second"))),
        ("second (MatMul)", "'y': float32 (batch, 2); 'w': float32 (3, 2)"),
    ),
    "another output": (
        changed(
            lambda graph: graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, ["batch", 7]))
        ),
        ("output 'y' is float32 (batch, 7), and its nodes make it float32 (batch, 2)",),
    ),
    "texts": (
        changed(lambda graph: graph.initializer.add(name="t", data_type=TensorProto.STRING, dims=[0])),
        ("holds texts",),
    ),
    "a sequence": (
        changed(lambda graph: graph.input.append(helper.make_tensor_sequence_value_info("s", FLOAT, None))),
        ("'s' is a sequence",),
    ),
    "a sparse tensor": (
        changed(lambda graph: setattr(graph.sparse_initializer.add().values, "name", "s")),
        ("sparse tensor 's'",),
    ),
    "an input without a type": (
        changed(lambda graph: graph.input.add(name="u")), ("input 'u' has no type",),
    ),
}  # fmt: skip


@pytest.mark.every_case
@pytest.mark.parametrize("wrong", REFUSED)
def test_what_is_no_network_is_refused_with_the_reason(wrong: str) -> None:
    """Files, values, functions, sets, nodes: by the name of what is wrong."""
    source, words = REFUSED[wrong]
    said = refusal(source())
    assert [word for word in words if word not in said] == [], said


def test_every_truncation_of_a_file_is_refused() -> None:
    data = dense().SerializeToString()
    Network.from_onnx(data)
    for size in range(len(data)):
        refusal(data[:size])


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_file_with_wrong_bytes_is_read_or_refused_but_never_crashes(draw: st.DataObject) -> None:
    data = bytearray(dense().SerializeToString())
    for _ in range(draw.draw(st.integers(1, 4))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    with contextlib.suppress(D5Error):
        Network.from_onnx(bytes(data))


def test_data_files_in_the_models_own_folder_are_read(tmp_path: Path) -> None:
    value = np.arange(6, dtype=np.float32).reshape(3, 2)
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "w.bin").write_bytes(b"12345678" + value.tobytes() + b"more")
    onnx.save(external("parts/w.bin", "8", "24"), tmp_path / "model.onnx")
    (tmp_path / "link.onnx").symlink_to("model.onnx")
    for name in ("model.onnx", "link.onnx"):
        assert np.array_equal(Network.from_onnx(tmp_path / name).parameters["w"], value)


@pytest.mark.parametrize(
    "location",
    ["../secret", "inner/../../secret", "/etc/passwd", "link", "folder/secret", "", "a\0b", "pipe"],
)
def test_data_files_outside_of_the_folder_are_not_read(location: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(24))
    folder = tmp_path / "models"
    (folder / "inner").mkdir(parents=True)
    (folder / "link").symlink_to("../secret")
    (folder / "folder").symlink_to("..")
    os.mkfifo(folder / "pipe")  # which nobody waits for
    (folder / "model.onnx").write_bytes(external(location).SerializeToString())
    assert "the tensor 'w'" in refusal(folder / "model.onnx")


@pytest.mark.parametrize(
    ("offset", "length", "said"),
    [("8", "24", "24"), ("0", "23", "23 bytes in its data file"), ("-1", "", "-1"), ("1e3", "", "1e3")],
)
def test_places_in_data_files_that_are_not_there_are_refused(
    offset: str, length: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(24))
    (tmp_path / "model.onnx").write_bytes(external("w.bin", offset, length).SerializeToString())
    with pytest.raises(ConfigurationError, match=f"the tensor 'w' .*{said}"):
        Network.from_onnx(tmp_path / "model.onnx")


def test_what_would_be_absurdly_large_is_not_computed_when_it_is_read() -> None:
    large = numpy_helper.from_array(np.array([2**20, 2**20, 1, 3]), "large")
    nodes = (node("ConstantOfShape", "large", "big"), node("Mul", "x big", "y"))
    assert len(Network.from_onnx(model(*nodes, initializers=(large,))).nodes) == 2


@pytest.mark.full
def test_nodes_are_put_in_order_in_linear_time_and_a_large_circle_is_told_briefly() -> None:
    """One node reads from 20,000 that stand behind it; looking again for each would be 2 * 10**8 looks."""
    count = 20_000
    names = [f"t{place}" for place in range(count)]
    made = model(node("Sum", " ".join(names), "y"), *(node("Relu", "x", name) for name in names))
    began = time.process_time()
    assert len(Network.from_onnx(made).nodes) == count + 1
    assert time.process_time() - began < 15
    ring = (node("Relu", f"t{(place + 1) % count}", f"t{place}", f"n{place}") for place in range(count))
    made = model(*ring)
    made.graph.output[0].name = "t0"
    said = refusal(made)
    assert "circle" in said and "(19990 others)" in said and len(said) < 1000


def test_functions_are_put_in_the_place_of_their_calls() -> None:
    network = Network.from_onnx(
        calling(function("twice", *calls("once", 2)), function("once", node("Relu", "a", "b", "inner")))
    )
    assert [each.type for each in network.nodes] == ["Relu", "Relu"]
    assert network.outputs["y"].shape == ("batch", 3)


def test_the_callers_model_is_not_changed() -> None:
    made = dense()
    before = made.SerializeToString()
    network = Network.from_onnx(made)
    network.rename_node("product", "other")
    assert made.SerializeToString() == before


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be written to .*none/model.onnx': No such file"):
        Network.from_onnx(dense()).to_onnx(tmp_path / "none" / "model.onnx")
