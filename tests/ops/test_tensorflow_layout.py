"""The layout of images under TensorFlow: how many transposes a graph runs, and that results stay"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import Kernel, NodeContext
from d5ray.ops.catalogue import GROUPS
from tests.ops.operator_rows import ROWS
from tests.ops.running import known, of_tensorflow

IMAGES = (*GROUPS["convolution"], *GROUPS["pooling"], "BatchNormalization", "LRN")


@pytest.fixture(scope="module")
def tf() -> Any:
    from d5ray.ops.tensorflow.library import tf  # noqa: PLC0415

    return tf


def made(type: str, inputs: int = 1, outputs: int = 1, **attributes: Any) -> Kernel:
    from d5ray.ops.tensorflow import FACTORIES  # noqa: PLC0415

    names = tuple(f"x{index}" for index in range(inputs)), tuple(f"y{index}" for index in range(outputs))
    return FACTORIES[type](NodeContext(Node(type, *names, attributes)))


def residual_network() -> Callable[..., Any]:
    """Convolution, normalization, pooling, an addition of two branches, a concatenation, a gate, a mean."""
    conv = made("Conv", 3, pads=(1, 1, 1, 1))
    shrink = made("MaxPool", kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    normal, relu, clip = made("BatchNormalization", 5, 1, training_mode=1), made("Relu"), made("Clip", 3)
    add, multiply, concat = made("Add", 2), made("Mul", 2), made("Concat", 2, axis=1)
    mean, flatten, gemm = made("GlobalAveragePool"), made("Flatten"), made("Gemm", 3)
    enlarge = made(
        "Resize", 4, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )

    def run(
        x: Any, w: Any, b: Any, scale: Any, slope: Any, scores: Any, zero: Any, six: Any, scales: Any
    ) -> Any:
        first = relu(normal(shrink(conv(x, w, b)), scale, scale, scale, scale))  # (batch, 3, 4, 4)
        second = clip(conv(first, w, b), zero, six)
        joined = multiply(add(first, second), slope)
        wide = enlarge(concat(joined, second), None, scales, None)
        return gemm(flatten(mean(wide)), scores, None)

    return run


def inputs(tf: Any, dtype: str = "float32") -> list[Any]:
    """Images, weights and the bounds of the clip; outputs of the network are of the order of 1."""
    generator = np.random.default_rng(3)
    shapes = ((2, 3, 8, 8), (3, 3, 3, 3), (3,), (3,), (3, 1, 1), (6, 4))
    drawn = [generator.standard_normal(shape) for shape in shapes]
    drawn[-1] /= 20
    return [tf.constant(np.asarray(x, dtype)) for x in (*drawn, 0, 6)]


# Sums of at most 128 products, through eight layers: each adds u (2⁻²⁴, 2⁻⁵³) of the largest at most, and any
# kernel may choose another order. 128 · 8 u = 6e-5 and 1.1e-13.
ROUNDING = {"float32": 6e-5, "float64": 1.1e-13}


def run_of(tf: Any) -> Callable[..., Any]:
    """The network's loss, output and gradients."""
    network, scales = residual_network(), tf.constant([1.0, 1.0, 2.0, 2.0])

    def run(*given: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(given[:6])
            y = network(*given, scales)
            loss = tf.reduce_sum(y * tf.sin(y))
        return loss, y, tape.gradient(loss, given[:6])

    return run


def executed(function: Any, name: str) -> int:
    """How many nodes of a type lie on a way to the results of a traced function."""
    graph = function.graph
    seen, waiting = set(), [tensor.op for tensor in graph.outputs]
    while waiting:
        operation = waiting.pop()
        if operation.name not in seen:
            seen.add(operation.name)
            waiting += [tensor.op for tensor in operation.inputs] + list(operation.control_inputs)
    return sum(graph.get_operation_by_name(each).type == name for each in seen)


def test_a_graph_transposes_a_network_at_its_ends_alone(tf: Any) -> None:
    """Forwards: the images once at the begin, the mean at the end, and the filters of both convolutions."""
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("on GPUs nothing is transposed")
    network, scales = residual_network(), tf.constant([1.0, 1.0, 2.0, 2.0])
    traced = tf.function(lambda *given: network(*given, scales)).get_concrete_function(*inputs(tf))
    assert executed(traced, "Conv2D") == 2
    assert executed(traced, "Transpose") == 4


@pytest.mark.parametrize("batch", [2, None], ids=["known batch", "open batch"])
@pytest.mark.parametrize("dtype", ROUNDING)
def test_graphs_give_what_calls_give(dtype: str, batch: int | None, tf: Any) -> None:
    """Outputs and gradients, although the graph works on other tensors than the calls."""
    run, given = run_of(tf), inputs(tf, dtype)
    signature = [tf.TensorSpec(x.shape, x.dtype) for x in given]
    signature[0] = tf.TensorSpec([batch, 3, 8, 8], dtype)
    expected, found = run(*given), tf.function(run, input_signature=signature)(*given)
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        assert other.dtype == dtype
        np.testing.assert_allclose(one, other, rtol=0, atol=ROUNDING[dtype] * np.abs(other).max())


@pytest.mark.parametrize(
    "shape", [(2, 3, 1, 1), (3, 1, 1), (1, 3, 1, 1), (1,), (), (2, 3, 4, 4), (3, 4, 4), (4,)]
)
def test_broadcasting_is_that_of_channels_first(shape: tuple[int, ...], tf: Any) -> None:
    """What is added to an image that remembers its original, in all shapes that can be."""
    conv, add = made("Conv", 2), made("Add", 2)
    generator = np.random.default_rng(0)
    x, w, other = (
        tf.constant(generator.standard_normal(each).astype(np.float32))
        for each in ((2, 3, 4, 4), (3, 3, 1, 1), shape)
    )
    expected = conv(x, w).numpy() + other.numpy()
    for pair in (lambda: add(conv(x, w), other), lambda: add(other, conv(x, w))):
        np.testing.assert_allclose(tf.function(pair)(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", IMAGES)
def test_channels_first_gives_what_channels_last_gives(
    kind: str, tf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way that GPUs take, compiled for the CPU by XLA, which knows both: outputs and gradients."""
    from d5ray.ops.tensorflow import convolution, normalization, pooling  # noqa: PLC0415
    from d5ray.ops.tensorflow.layout import CHANNELS_FIRST, current_layout  # noqa: PLC0415

    for row in [row for row in ROWS if row.type == kind]:
        given = row.drawn(np.float32)
        found = []
        for layout in (current_layout, lambda: CHANNELS_FIRST):
            for module in (convolution, normalization, pooling):
                monkeypatch.setattr(module, "current_layout", layout)
            compiled = layout is not current_layout
            found.append(of_tensorflow(known(row.context, given), given, traced=compiled, compiled=compiled))
        for one, other in zip(*(tf.nest.flatten([*each]) for each in found), strict=True):
            if one is not None and other is not None:
                np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-4, err_msg=str(row))
