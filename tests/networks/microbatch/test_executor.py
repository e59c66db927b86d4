"""Claims about executors that compute a batch in parts: results of whole batches, in the memory of a part"""

from typing import Any

import numpy as np
import pytest

from d5ray.errors import ConfigurationError
from d5ray.networks.microbatch.executor import MicroBatched
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from tests.frameworks.small_networks import (
    BATCH,
    FRAMEWORKS,
    Array,
    case,
    error,
    executor,
    gradients_of,
    network_of,
)

LIMIT = 1e-11  # relative, in float64
frameworks = pytest.mark.parametrize("framework", FRAMEWORKS)


@frameworks
@pytest.mark.parametrize("size", [4, 1, (1, 3, 2)])
@pytest.mark.parametrize("name", ["lenet", "transformer"])
def test_a_training_pass_is_that_of_the_whole_batch(framework: str, name: str, size: Any) -> None:
    """Outputs, loss and gradients; parts may have different sizes."""
    made = case(name, "float64")
    whole = executor(framework, made.network)
    expected = whole.inference_and_backprop(made.given)
    under_test = MicroBatched(executor(framework, made.network), size)
    for _ in range(2):  # nothing is left over from the pass before
        found = under_test.inference_and_backprop(made.given)
    assert list(found) == list(expected)
    assert all(error(found[output], value) < LIMIT for output, value in expected.items())
    gradients, wanted = gradients_of(under_test), gradients_of(whole)
    largest = max(np.abs(value).max() for value in wanted.values())
    assert gradients.keys() == wanted.keys()
    for parameter, value in wanted.items():
        assert np.abs(gradients[parameter] - value).max() < LIMIT * largest, parameter
    given = {"input": made.inputs}
    assert error(under_test.inference(given)["output"], whole.inference(given)["output"]) < LIMIT


def reducing(*nodes: Node, outputs: tuple[str, ...]) -> Any:
    """x (n, 3) times w, summed to a number for each sample, h (n,); then these nodes."""
    return network_of(
        Node("Mul", ("x", "w"), ("m",)),
        Node("ReduceSum", ("m", "last"), ("h",), {"keepdims": 0}),
        *nodes,
        inputs={"x": TensorDescriptor("float64", ("n", 3))},
        outputs=outputs,
        parameters={"w": np.array([1.0, -2.0, 0.5])},
        constants={"last": np.array([1]), "two": np.array(2.0)},
    )


REDUCTIONS = {
    "a sum": (Node("ReduceSum", ("h",), ("loss",), {"keepdims": 0}),),
    "twice a mean": (
        Node("ReduceMean", ("h",), ("a",), {"keepdims": 0}),
        Node("Mul", ("two", "a"), ("loss",)),
    ),
    "a mean, and a term of the parameters": (
        Node("ReduceMean", ("h",), ("a",), {"keepdims": 0}),
        Node("Mul", ("w", "w"), ("ww",)),
        Node("ReduceSum", ("ww",), ("decay",), {"keepdims": 0}),
        Node("Add", ("a", "decay"), ("loss",)),
    ),
    "a contraction": (Node("Einsum", ("h", "h"), ("loss",), {"equation": "n,n->"}),),
}


@frameworks
def test_parameters_that_are_added_have_gradients_of_their_own(framework: str) -> None:
    """Autograd hands one tensor to both: whoever scales it for the one must not do so for the other again."""
    w = np.array([[1.0, 2.0, 3.0]])

    def network() -> Any:
        return network_of(
            Node("Add", ("v", "w"), ("u",)),
            Node("Add", ("u", "b"), ("s",)),
            Node("Mul", ("x", "s"), ("y",)),
            Node("ReduceMean", ("y",), ("loss",), {"keepdims": 0}),
            inputs={"x": TensorDescriptor("float64", ("n", 3))},
            outputs=("loss",),
            parameters={"v": w, "w": w, "b": w},
        )

    given = {"x": np.random.default_rng(0).standard_normal((5, 3))}
    under_test = MicroBatched(executor(framework, network()), 2)
    for _ in range(2):
        under_test.inference_and_backprop(given)
    for gradient in gradients_of(under_test).values():
        np.testing.assert_allclose(gradient, given["x"].sum(0, keepdims=True) / 15, rtol=1e-12)


@frameworks
@pytest.mark.parametrize("nodes", REDUCTIONS.values(), ids=REDUCTIONS)
def test_losses_are_added_up_as_they_reduce(framework: str, nodes: tuple[Node, ...]) -> None:
    """Parts of 2 and 1: a mean weights them, a sum does not, a term of the parameters counts once."""
    given = {"x": np.random.default_rng(0).standard_normal((3, 3))}
    whole = executor(framework, reducing(*nodes, outputs=("h", "loss")))
    expected = whole.inference_and_backprop(given)
    under_test = MicroBatched(executor(framework, reducing(*nodes, outputs=("h", "loss"))), 2)
    found = under_test.inference_and_backprop(given)
    assert all(error(found[name], value) < LIMIT for name, value in expected.items())
    assert error(gradients_of(under_test)["w"], gradients_of(whole)["w"]) < LIMIT


@frameworks
def test_a_mean_squared_error_is_that_of_the_whole_batch(framework: str) -> None:
    """With its labels, the gradient of 2 (x w - t) x / (3 n)."""
    network = reducing(outputs=("m",))
    network.add_loss("MeanSquaredError", "m", "t")
    x, t = np.random.default_rng(0).standard_normal((2, 5, 3))
    under_test = MicroBatched(executor(framework, network), 2)
    found = under_test.inference_and_backprop({"x": x, "t": t})
    w = network.parameters["w"]
    assert float(found["loss"]) == pytest.approx(((x * w - t) ** 2).mean(), rel=1e-12)
    expected = (2 * (x * w - t) * x).sum(0) / 15
    np.testing.assert_allclose(gradients_of(under_test)["w"], expected, rtol=1e-12)


NONLINEAR = {
    "of a mean": (
        (
            Node("ReduceMean", ("h",), ("a",), {"keepdims": 0}),
            Node("Mul", ("a", "a"), ("loss",), name="square"),
        ),
        r"square \(Mul\) mixes samples: it computes with a mean over samples",
    ),
    "of the largest": (
        (Node("ReduceMax", ("h",), ("loss",), {"keepdims": 0}, "largest"),),
        r"largest \(ReduceMax\) mixes samples: it reduces over axis 0",
    ),
}


@pytest.mark.parametrize(("nodes", "message"), NONLINEAR.values(), ids=NONLINEAR)
def test_losses_that_parts_cannot_make_are_refused(nodes: tuple[Node, ...], message: str) -> None:
    under_test = MicroBatched(executor("numpy", reducing(*nodes, outputs=("loss",))), 2)
    with pytest.raises(ConfigurationError, match=message):
        under_test.inference_and_backprop({"x": np.ones((3, 3))})


def test_batch_statistics_are_refused_in_training() -> None:
    """Until they are frozen; inference uses the running ones."""
    made = case("resnet8", "float64")
    under_test = MicroBatched(executor("numpy", made.network), 4)
    with pytest.raises(
        ConfigurationError, match=r"\(BatchNormalization\) mixes .*frozen_statistics.* others?"
    ):
        under_test.inference_and_backprop(made.given)
    given = {"input": made.inputs}
    expected = executor("numpy", made.network).inference(given)["output"]
    assert error(under_test.inference(given)["output"], expected) < LIMIT


def test_it_stands_in_the_place_of_an_executor() -> None:
    """What is fed is used, fetched gradients are those of whole batches, a frozen parameter stays so."""
    made = case("mlp", "float64")
    network = made.network
    first, *others = network.parameters
    under_test = MicroBatched(executor("torch", network, trained=others), 4)
    before = under_test.inference_and_backprop(made.given)["loss"]
    network.feed_tensor(first, network.parameters[first] * 2)
    assert under_test.inference_and_backprop(made.given)["loss"] != before
    assert network.fetch_tensors([first])[0] == pytest.approx(network.parameters[first])
    with pytest.raises(ConfigurationError, match="is frozen"):
        network.fetch_tensors([dict(network.gradient())[first]])
    assert under_test.forward_ns > 0 and under_test.backward_ns > 0


def test_sizes_and_batches_that_do_not_fit_are_refused() -> None:
    made = case("mlp")
    for size in (0, (), (2, 0), 1.5):
        with pytest.raises((ConfigurationError, TypeError)):
            MicroBatched(executor("numpy", made.network), size)  # type: ignore[arg-type]
    under_test = MicroBatched(executor("numpy", made.network), (4, 4))
    with pytest.raises(ConfigurationError, match=rf"batch has {BATCH} samples, .* 4, 4 add up to 8"):
        under_test.inference_and_backprop(made.given)
    closed = network_of(
        Node("Relu", ("x",), ("y",)), inputs={"x": TensorDescriptor("float32", (4, 2))}, outputs=("y",)
    )
    with pytest.raises(ConfigurationError, match=r"one size alone, by its input 'x' \(float32 \(4, 2\)\)"):
        MicroBatched(executor("numpy", closed), 2).inference({"x": np.ones((4, 2), np.float32)})


def test_outputs_keep_the_axis_of_their_samples() -> None:
    """Transposed ones are put together along the axis where the samples are."""
    network = network_of(
        Node("Transpose", ("x",), ("y",), {"perm": (1, 0)}),
        inputs={"x": TensorDescriptor("float32", ("n", 2))},
        outputs=("y",),
    )
    x: Array = np.arange(10, dtype=np.float32).reshape(5, 2)
    np.testing.assert_array_equal(MicroBatched(executor("numpy", network), 2).inference({"x": x})["y"], x.T)
