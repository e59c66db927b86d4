"""Claims about whole models of the ONNX project: read, run in every framework, with the outputs it expects"""

import fnmatch
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
import pytest
from onnx import numpy_helper

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.networks.network import Network
from tests.frameworks.small_networks import FRAMEWORKS, Array, executor
from tests.ops.onnx_cases import listed

FOLDER = Path(onnx.backend.test.__file__).parent / "data"
STEPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}  # the distance of 1 to the next number
every_framework = pytest.mark.parametrize("framework", FRAMEWORKS)


@dataclass(frozen=True)
class Model:
    """With its inputs, in the model's order, and what it must give. logits: of its last softmax, if any."""

    name: str
    proto: onnx.ModelProto
    inputs: tuple[Any, ...]
    expected: tuple[Any, ...]
    rtol: float = 1e-3
    atol: float = 1e-7
    logits: str = ""

    @property
    def network(self) -> Network:
        """The model, which gives its logits as well."""
        proto = onnx.ModelProto()
        proto.CopyFrom(self.proto)
        if self.logits:
            proto.graph.output.add(name=self.logits).type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        return Network.from_onnx(proto)


def of_folder(name: str) -> Iterator[Model]:
    """A folder with a model, its inputs and its outputs, each in a file."""
    for folder in sorted((FOLDER / name).iterdir()):
        proto = onnx.load(folder / "model.onnx")
        for data in sorted(folder.glob("test_data_set_*")):
            yield Model(folder.name, proto, _tensors(data, "input"), _tensors(data, "output"))


def famous() -> Iterator[Model]:
    """AlexNet, DenseNet, Inception, ResNet and others, on numbers that grow from 0 to 1."""
    for path in sorted((FOLDER / "light").glob("*.onnx")):
        proto = onnx.load(path)
        held = {tensor.name for tensor in proto.graph.initializer}
        inputs = []
        for value in proto.graph.input:
            if value.name not in held:
                shape = [size.dim_value for size in value.type.tensor_type.shape.dim]
                numbers = np.arange(np.prod(shape)).reshape(shape) / np.prod(shape)
                inputs.append(numbers.astype(np.float32))
        expected = _read(path.with_name(f"{path.stem}_output_0.pb"))
        last = proto.graph.node[-1]
        logits = last.input[0] if last.op_type == "Softmax" else ""
        yield Model(path.stem, proto, tuple(inputs), (expected,), logits=logits)


def _tensors(folder: Path, kind: str) -> tuple[Any, ...]:
    count = len(list(folder.glob(f"{kind}_*.pb")))
    return tuple(_read(folder / f"{kind}_{place}.pb") for place in range(count))


def _read(path: Path) -> Array | None:
    """The tensor of a file; None for a sequence, which no network takes."""
    proto = onnx.TensorProto()
    try:
        proto.ParseFromString(path.read_bytes())
        return numpy_helper.to_array(proto)
    except Exception:
        return None


def failure(framework: str, model: Model) -> str:
    """Why a model does not run or gives something else; nothing where all is well."""
    try:
        network = model.network
        outputs = executor(framework, network).inference(dict(zip(network.inputs, model.inputs, strict=True)))
        for name, expected in zip(model.proto.graph.output, model.expected, strict=True):
            found = outputs[name.name]
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape), name.name
            rtol = max(model.rtol, 2 * STEPS.get(expected.dtype.name, 0.0))
            if model.logits:
                found, expected = conditioned(outputs[model.logits], found, expected, rtol)
            if expected.dtype.name == "bfloat16":
                found, expected = found.astype(np.float32), expected.astype(np.float32)
            np.testing.assert_allclose(found, expected, rtol=rtol, atol=model.atol)
    except (ConfigurationError, AssertionError) as error:
        return str(error) or type(error).__name__
    return ""


def conditioned(logits: Array, found: Array, expected: Array, rtol: float) -> tuple[Array, Array]:
    """The output of a softmax and the expected one, or the logits where these alone are worth comparing.

    The last place of 9e9 is 1024: logits that differ by no more have softmaxes that are e¹⁰²⁴ apart, by the
    order in which a sum is taken. Logits differ as the logarithms of what is expected do, relative to their
    own magnitude.
    """
    assert np.isfinite(logits).all()
    if np.spacing(np.abs(logits).max()) <= rtol:
        return found, expected
    apart = np.log(expected.astype(np.float64))
    return logits, (logits.max() + apart - apart.max()).reshape(logits.shape)


def check(framework: str, models: Iterator[Model]) -> int:
    """How many pass; those that are listed, and no others, fail, with the words of the list."""
    surprises, passed = [], 0
    for model in models:
        found = failure(framework, model)
        words = next(
            (each for name, each in listed("models").items() if fnmatch.fnmatch(model.name, name)), None
        )
        if words is None and not found:
            passed += 1
        elif words is None or not re.search(words, found):
            surprises.append(f"{model.name}: {found or 'passes, and is listed'}")
    assert not surprises, "\n".join(surprises)
    return passed


@every_framework
@pytest.mark.parametrize(("folder", "count"), [("simple", 7), ("pytorch-operator", 35)])
def test_models_that_were_exported_give_what_they_gave(framework: str, folder: str, count: int) -> None:
    """Of operator sets as old as 6: functions of PyTorch among them."""
    assert check(framework, of_folder(folder)) == count


@pytest.mark.parametrize("framework", ["numpy", "torch", pytest.param("tensorflow", marks=pytest.mark.slow)])
def test_layers_that_were_exported_give_what_they_gave(framework: str) -> None:
    """Of PyTorch; one pools 4,800 elements in a window, which TensorFlow needs long to understand."""
    pytest.importorskip(framework)
    assert check(framework, of_folder("pytorch-converted")) == 79


@pytest.mark.full
@every_framework
def test_famous_networks_give_what_onnx_computed(framework: str) -> None:
    """Nine of them; TensorFlow keeps three copies of half a gigabyte of weights, and AlexNet has it all."""
    left_out = ("light_vgg19", "light_zfnet512") if framework == "tensorflow" else ()
    assert check(framework, (each for each in famous() if each.name not in left_out)) == 9 - len(left_out)


def test_operators_of_the_users_own_are_not_written_out() -> None:
    """One with a name of ONNX's in another domain keeps its attributes, beside one of ONNX's."""

    class Doubled(d5.CustomPythonOp):
        def forward(self, x: Any) -> Any:
            return 2 * x

    d5.register_operator("test.written_out", "HannWindow", Doubled)
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("HannWindow", ["size"], ["window"]),
            onnx.helper.make_node("Mul", ["x", "window"], ["y"]),
            onnx.helper.make_node("HannWindow", ["y"], ["z"], domain="test.written_out"),
        ],
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [5])],
        [onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [5])],
        [numpy_helper.from_array(np.array(5), "size")],
    )
    opsets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("test.written_out", 1)]
    network = Network.from_onnx(onnx.helper.make_model(graph, opset_imports=opsets))
    own = [node for node in network.nodes if node.type == "HannWindow"]
    assert [(node.domain, dict(node.attributes)) for node in own] == [("test.written_out", {})]


def test_logits_are_compared_where_the_softmax_of_them_says_nothing() -> None:
    """A last place apart, they are right, whatever their softmax is; a hundredth apart they are not."""
    halves = np.full(2, 0.5, np.float32)
    pairs = ((9e9, 9e9 - 1024, True), (9e9, 8.9e9, False), (3.0, 3.0, True), (3.0, 2.9, False))
    for high, low, right in pairs:
        logits = np.array([high, low], np.float32)
        softmax = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        compared = conditioned(logits, softmax, halves, 1e-3)
        assert np.allclose(*compared, rtol=1e-3, atol=1e-7) == right


def test_an_output_that_is_wrong_is_seen() -> None:
    """The check is not blind."""
    model = next(of_folder("pytorch-operator"))
    wrong = Model(model.name, model.proto, model.inputs, tuple(1.01 * each for each in model.expected))
    assert not failure("torch", model)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check("torch", iter([wrong]))
