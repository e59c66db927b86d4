"""Claims about ONNX files that are broken: each is one clear error, and nothing else is read or run"""

import contextlib
import os
import time
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


def external(
    location: str, offset: str = "", length: str = "", dims: tuple[int, ...] = (3, 2)
) -> onnx.ModelProto:
    """The same, whose w stands in a data file."""
    made = dense()
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    del tensor.dims[:]
    tensor.dims.extend(dims)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value:
            tensor.external_data.add(key=key, value=value)
    return made


def refusal(source: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        Network.from_onnx(source)
    return str(caught.value)


def test_a_file_that_is_not_there_or_no_file_is_said_to_be() -> None:
    assert "'/no/such/file.onnx' cannot be read: No such file" in refusal("/no/such/file.onnx")
    assert "no ordinary file" in refusal("/")
    assert "no ordinary file" in refusal("/dev/zero")
    assert "cannot be read from a int" in refusal(3)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    assert "no ordinary file" in refusal(tmp_path / "pipe.onnx")


@pytest.mark.parametrize("data", [b"", b"hello, world", b"\x00" * 64, b"\x80" * 64, b"\xff\xd8\xff\xe0 JFIF"])
def test_what_is_no_model_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "file.onnx").write_bytes(data)
    assert "no ONNX model" in refusal(data)
    assert "no ONNX model" in refusal(tmp_path / "file.onnx")


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
    assert np.array_equal(Network.from_onnx(tmp_path / "model.onnx").parameters["w"], value)
    (tmp_path / "link.onnx").symlink_to("model.onnx")
    assert np.array_equal(Network.from_onnx(tmp_path / "link.onnx").parameters["w"], value)


@pytest.mark.parametrize(
    "location",
    [
        "../secret",
        "inner/../../secret",
        "/etc/passwd",
        "link",
        "folder/secret",
        "",
        "..",
        "a\0b",
        "..\\secret",
    ],
)
def test_data_files_outside_of_the_folder_are_not_read(location: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(24))
    folder = tmp_path / "models"
    (folder / "inner").mkdir(parents=True)
    (folder / "link").symlink_to("../secret")
    (folder / "folder").symlink_to("..")
    (folder / "model.onnx").write_bytes(external(location).SerializeToString())
    assert "the tensor 'w'" in refusal(folder / "model.onnx")


@pytest.mark.parametrize(
    ("offset", "length", "said"),
    [
        ("8", "24", "24"),
        ("0", "23", "23 bytes in its data file, and its type and shape take 24"),
        ("-1", "", "-1"),
        ("1e3", "", "1e3"),
        ("9" * 30, "", "9999"),
    ],
)
def test_places_in_data_files_that_are_not_there_are_refused(
    offset: str, length: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(24))
    (tmp_path / "model.onnx").write_bytes(external("w.bin", offset, length).SerializeToString())
    with pytest.raises(ConfigurationError, match=f"the tensor 'w' .*{said}"):
        Network.from_onnx(tmp_path / "model.onnx")


def test_data_files_that_are_missing_or_no_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(external("w.bin").SerializeToString())
    assert f"{tmp_path}/w.bin" in refusal(tmp_path / "model.onnx")
    os.mkfifo(tmp_path / "w.bin")
    assert f"{tmp_path}/w.bin" in refusal(tmp_path / "model.onnx")
    assert "give the path of the ONNX file" in refusal(external("w.bin"))


def test_a_value_that_is_not_as_large_as_it_claims_is_refused() -> None:
    for dims in [
        (3, 3),
        (2**40,),
        (2**62, 2**62),
        (2**63 - 1,) * 100,
        (1,) * 200,
        (-1, 2),
        (0, 2**62, 2**62),
    ]:
        made = dense()
        del made.graph.initializer[0].dims[:]
        made.graph.initializer[0].dims.extend(dims)
        assert "the tensor 'w'" in refusal(made)


def test_a_value_of_numbers_that_are_not_as_many_as_it_claims_is_refused() -> None:
    made = dense()
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.float_data.extend([1.0] * 5)
    assert "claims float (3, 2), and does not have as many elements" in refusal(made)


@pytest.mark.parametrize(
    "nodes",
    [
        (node("ConstantOfShape", "large", "big"), node("Mul", "x big", "y")),
        (node("Expand", "x large", "y"),),
        (node("Tile", "x many", "y"),),
    ],
)
def test_what_would_be_absurdly_large_is_not_computed_when_it_is_read(
    nodes: tuple[onnx.NodeProto, ...],
) -> None:
    values = (
        numpy_helper.from_array(np.array([2**20, 2**20, 1, 3]), "large"),
        numpy_helper.from_array(np.array([2**40, 2**20]), "many"),
    )
    network = Network.from_onnx(model(*nodes, initializers=values))
    assert len(network.nodes) == len(nodes)


@pytest.mark.full
def test_nodes_are_put_in_order_in_linear_time_and_a_large_circle_is_told_briefly() -> None:
    """One node reads from 20,000 that stand behind it; looking again for each would be 2 * 10**8 looks."""
    count = 20_000
    names = [f"t{place}" for place in range(count)]
    made = model(node("Sum", " ".join(names), "y"), *(node("Relu", "x", name) for name in names))
    began = time.process_time()
    assert len(Network.from_onnx(made).nodes) == count + 1
    assert time.process_time() - began < 15
    made = model(
        *(node("Relu", f"t{(place + 1) % count}", f"t{place}", f"n{place}") for place in range(count))
    )
    made.graph.output[0].name = "t0"
    said = refusal(made)
    assert "circle" in said
    assert "(19990 others)" in said
    assert len(said) < 1000


@pytest.mark.full
def test_200_000_nodes_are_read_in_10_seconds() -> None:
    """Of an idle processor's time; half as much again of a busy one's. ONNX's own conversion takes longer."""
    for opset in (13, 28):
        nodes, last = [], "x"
        for place in range(200_000):
            reads = (last, f"{last} w", f"{last} {last}", f"{last} m")[place % 4]
            nodes.append(node(("Relu", "Add", "Mul", "Gemm")[place % 4], reads, f"t{place}", f"n{place}"))
            last = f"t{place}"
        values = (
            numpy_helper.from_array(np.ones(3, np.float32), "w"),
            numpy_helper.from_array(np.eye(3, dtype=np.float32), "m"),
        )
        made = model(*nodes, initializers=values, opset=opset)
        made.graph.output[0].CopyFrom(helper.make_tensor_value_info(last, FLOAT, ["batch", 3]))
        data = made.SerializeToString()
        began = time.process_time()
        assert len(Network.from_onnx(data).nodes) == 200_000
        assert time.process_time() - began < (15 if opset == 28 else 30)


def function(name: str, *nodes: onnx.NodeProto) -> onnx.FunctionProto:
    return helper.make_function(
        "own", name, ["a"], ["b"], list(nodes), [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    )


def calls(name: str, count: int) -> list[onnx.NodeProto]:
    """a -> count calls of a function, one after another -> b"""
    names = ["a", *(f"t{place}" for place in range(1, count)), "b"]
    return [node(name, names[place], names[place + 1], domain="own") for place in range(count)]


def doubling() -> onnx.ModelProto:
    """Ten functions, each of which calls the next ten times."""
    functions = [function(f"f{place}", *calls(f"f{place + 1}", 10)) for place in range(10)]
    functions.append(function("f10", node("Relu", "a", "b")))
    return model(node("f0", "x", "y", domain="own"), functions=functions)


def test_functions_are_put_in_the_place_of_their_calls() -> None:
    functions = [function("twice", *calls("once", 2)), function("once", node("Relu", "a", "b", "inner"))]
    network = Network.from_onnx(model(node("twice", "x", "y", domain="own"), functions=functions))
    assert [each.type for each in network.nodes] == ["Relu", "Relu"]
    assert network.outputs["y"].shape == ("batch", 3)


def test_functions_that_call_themselves_or_grow_without_end_are_refused() -> None:
    circle = [function("f", *calls("g", 1)), function("g", *calls("f", 1))]
    assert "calls itself" in refusal(model(node("f", "x", "y", domain="own"), functions=circle))
    assert "10,000,000,000 nodes when its functions are inlined" in refusal(doubling())


def test_everything_that_is_missing_in_a_model_and_its_functions_is_named_at_once() -> None:
    made = model(
        node("ImageDecoder", "x", "c", "picture"),
        node("SequenceLength", "c", "d", "length"),
        node("f", "d", "y", domain="own"),
        functions=[
            function(
                "f", node("StringConcat", "a", "c", "inner"), node("Their", "c", "b", "other", domain="own")
            )
        ],
    )
    said = refusal(made)
    assert "4 operator types" in said
    assert (
        "ImageDecoder (at 'picture'), SequenceLength (at 'length'), StringConcat (at 'inner'), "
        "own.Their (at 'other')" in said
    )


def test_operator_sets_that_are_not_known_are_refused() -> None:
    assert "operator set 99, and d5ray knows 1 to 28" in refusal(model(node("Relu", "x", "y"), opset=99))
    newer = model(node("Relu", "x", "y"))
    newer.ir_version = 99
    assert "format 99" in refusal(newer)


def test_tensors_that_are_made_twice_or_never_or_in_a_circle_are_refused() -> None:
    assert "'y' is made twice" in refusal(model(node("Relu", "x", "y", "a"), node("Tanh", "x", "y", "b")))
    assert "a (Relu) reads the tensor 'z'" in refusal(model(node("Relu", "z", "y", "a")))
    circle = model(node("Add", "x b", "y", "first"), node("Relu", "y", "b", "second"))
    assert "circle" in refusal(circle)
    assert "first (Add) -> second (Relu) -> first (Add)" in refusal(circle)
    twice = dense()
    twice.graph.initializer.append(twice.graph.initializer[0])
    assert "holds the tensor 'w' twice" in refusal(twice)
    twice = dense()
    twice.graph.input.append(twice.graph.input[0])
    assert "the input 'x' twice" in refusal(twice)


def test_shapes_that_do_not_fit_name_the_node_and_what_it_reads() -> None:
    made = dense()
    made.graph.node.append(node("MatMul", "y w", "z", "second"))
    said = refusal(made)
    assert "second (MatMul)" in said
    assert "'y': float32 (batch, 2); 'w': float32 (3, 2)" in said


def test_outputs_that_are_not_what_the_model_says_are_refused() -> None:
    made = dense()
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, ["batch", 7]))
    assert "output 'y' is float32 (batch, 7), and its nodes make it float32 (batch, 2)" in refusal(made)


def test_what_networks_do_not_hold_is_refused() -> None:
    texts = model(
        node("Relu", "x", "y"),
        initializers=(TensorProto(name="t", data_type=TensorProto.STRING, dims=[1], string_data=[b"a"]),),
    )
    assert "holds texts" in refusal(texts)
    sequence = model(node("Relu", "x", "y"))
    sequence.graph.input.append(helper.make_tensor_sequence_value_info("s", FLOAT, None))
    assert "'s' is a sequence" in refusal(sequence)
    sparse = model(node("Relu", "x", "y"))
    sparse.graph.sparse_initializer.add().values.name = "s"
    assert "sparse tensor 's'" in refusal(sparse)
    untyped = model(node("Relu", "x", "y"))
    untyped.graph.input.append(onnx.ValueInfoProto(name="u"))
    assert "input 'u' has no type" in refusal(untyped)


def test_the_callers_model_is_not_changed() -> None:
    made = dense()
    before = made.SerializeToString()
    network = Network.from_onnx(made)
    network.rename_node("product", "other")
    assert made.SerializeToString() == before


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be written to .*none/model.onnx': No such file"):
        Network.from_onnx(dense()).to_onnx(tmp_path / "none" / "model.onnx")
