"""Claims about what executors of a Network refuse: before anything runs, with what was found and expected"""

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from d5ray.errors import ConfigurationError
from d5ray.networks.device import GPUDevice
from d5ray.networks.events.event import GraphEvent, NetworkMoment
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.lookup import check_supported
from tests.frameworks.small_networks import FRAMEWORKS, case, executor, network_of

every_framework = pytest.mark.parametrize("framework", FRAMEWORKS)
Inputs = dict[str, Any]


class Runs(GraphEvent):
    """Counts passes that begin."""

    def __init__(self) -> None:
        self.begun = 0

    def before_network(self, moment: NetworkMoment) -> None:
        self.begun += 1


def changed(**changes: Any) -> Callable[[Inputs], Inputs]:
    """The inputs with others in the place of some; None leaves one out."""
    return lambda given: {name: value for name, value in {**given, **changes}.items() if value is not None}


IMAGES = np.zeros((6, 1, 8, 8), np.float32)
LABELS = np.zeros(6, np.int64)
REFUSED: dict[str, tuple[Callable[[Inputs], Inputs], tuple[str, ...]]] = {
    "unknown": (changed(inputs=IMAGES), ("no input 'inputs'", "did you mean 'input'?", "'labels' (int64")),
    "missing": (changed(input=None), ("needs the input 'input' (float32 (batch, 1, 8, 8))", "'labels'")),
    "no labels": (changed(labels=None), ("the loss 'loss' needs the input 'labels'", "given are 'input'")),
    "type": (
        changed(input=IMAGES.astype(np.float64)),
        ("'input' is float64 (6, 1, 8, 8)", "expected float32 (batch, 1, 8, 8)", ".astype('float32')"),
    ),
    "axes": (changed(input=IMAGES[:, 0]), ("'input' is float32 (6, 8, 8)", "needs 4 axes, and has 3")),
    "batches": (changed(labels=LABELS[:5]), ("'batch' is 5 in the input 'labels'", "6 in 'input'")),
    "a list": (changed(labels=[1, 2]), ("'labels' is a list", "numpy.asarray")),
}


@every_framework
@pytest.mark.parametrize("wrong", REFUSED)
def test_inputs_that_do_not_fit_are_refused_before_anything_runs(framework: str, wrong: str) -> None:
    """One error, naming the input, what was found and what the network takes; no pass begins."""
    change, words = REFUSED[wrong]
    runs = Runs()
    under_test = executor(framework, case("lenet").network, events=runs)
    with pytest.raises(ConfigurationError) as caught:
        under_test.inference_and_backprop(change({"input": IMAGES, "labels": LABELS}))
    for word in words:
        assert word in str(caught.value)
    assert runs.begun == 0


LOSSES = {
    "los": ("no tensor 'los'", "did you mean 'loss'?"),
    "output": ("the loss 'output' is float32 (batch, 10), not a scalar", "ReduceMean"),
    "whole": ("the loss 'whole' is int64 ()", "floating-point"),
    "apart": ("'apart' depends on none of the parameters that are trained",),
}


@every_framework
@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_that_cannot_be_differentiated_is_refused(framework: str, loss: str) -> None:
    """Unknown, an input, several numbers, integers, or one that no parameter has a part in."""
    network = case("mlp").network
    with network.changes():
        network.add_node(Node("Size", ("output",), ("whole",)))
        network.add_node(Node("ReduceMean", ("input",), ("apart",), {"keepdims": 0}))
        network.add_output("whole")
        network.add_output("apart")
    under_test = executor(framework, network)
    with pytest.raises(ConfigurationError) as caught:
        under_test.inference_and_backprop({"input": IMAGES, "labels": LABELS}, loss)
    for words in LOSSES[loss]:
        assert words in str(caught.value)


@every_framework
def test_a_loss_that_turns_out_to_be_several_numbers_is_refused(framework: str) -> None:
    """Where its shape is known only when it is there."""
    network = network_of(
        Node("Mul", ("x", "w"), ("loss",)),
        inputs={"x": TensorDescriptor("float32", None)},
        parameters={"w": np.ones((), np.float32)},
        outputs=("loss",),
    )
    under_test = executor(framework, network)
    assert under_test.inference_and_backprop({"x": np.ones((), np.float32)})["loss"] == 1
    with pytest.raises(ConfigurationError, match=r"'loss' has the shape \(2,\)"):
        under_test.inference_and_backprop({"x": np.ones(2, np.float32)})


def test_all_missing_operators_are_named_at_once() -> None:
    """With how often they stand in the network, and where first."""
    nodes = [
        Node("Relu", ("a",), ("b",), name="fine"),
        Node("Frobnicate", ("b",), ("c",), name="first"),
        Node("Frobnicate", ("c",), ("d",), name="second"),
        Node("Own", ("d",), ("e",), domain="my.domain"),
    ]
    with pytest.raises(ConfigurationError) as caught:
        check_supported("numpy", nodes)
    for words in ("Frobnicate (2 times, first 'first')", "my.domain.Own (1 times", "makes 'e'", "register"):
        assert words in str(caught.value)
    check_supported("numpy", nodes[:1])


def test_a_gpu_that_is_not_there_is_an_error() -> None:
    """NumPy has none, and the others say what to do; CuPy says what to install."""
    network = case("mlp").network
    with pytest.raises(ConfigurationError, match=r"cuda:0.*NumPy computes on the processor"):
        executor("numpy", network, device=GPUDevice())
    import torch  # noqa: PLC0415 - only here

    if not torch.cuda.is_available():
        with pytest.raises(ConfigurationError, match="PyTorch finds no GPU here: use CPUDevice"):
            executor("torch", network, device=GPUDevice())
    if importlib.util.find_spec("tensorflow") is not None:
        with pytest.raises(ConfigurationError, match="TensorFlow finds no GPU here: use CPUDevice"):
            executor("tensorflow", network, device=GPUDevice(9))
