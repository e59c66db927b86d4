"""What nodes cost: operations and bytes against values computed by hand, and DeepBench's formulas"""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.catalogue import TYPES
from d5ray.ops.counting.flops import _BACKWARD, _FORWARD
from d5ray.ops.counting.node_costs import NodeCost, backward_cost, forward_cost
from tests.ops.operator_rows import WITHOUT_GRADIENT

Shape = tuple[int, ...]


def place(
    kind: str,
    inputs: Sequence[Shape | None],
    outputs: Sequence[Shape],
    attributes: dict[str, Any] | None = None,
    dtype: str = "float32",
    **more: Any,
) -> NodeContext:
    """A node of these shapes."""
    read = ["" if each is None else f"x{index}" for index, each in enumerate(inputs)]
    written = [f"y{index}" for index in range(len(outputs))]
    return NodeContext(
        Node(kind, tuple(read), tuple(written), attributes or {}),
        inputs=tuple(None if each is None else TensorDescriptor(dtype, each) for each in inputs),
        outputs=tuple(TensorDescriptor(dtype, each) for each in outputs),
        **more,
    )


@given(
    m=st.integers(1, 8000), n=st.integers(1, 8000), k=st.integers(1, 8000), a=st.booleans(), b=st.booleans()
)
def test_a_product_is_deepbenchs(m: int, n: int, k: int, a: bool, b: bool) -> None:
    """DeepBench's gemm_bench: 2·m·n·k operations, transposed or not; three matrices are moved."""
    shapes = ((k, m) if a else (m, k), (n, k) if b else (k, n))
    context = place("Gemm", shapes, [(m, n)], {"transA": int(a), "transB": int(b)})
    assert forward_cost(context) == NodeCost(2 * m * n * k, 4 * (m * k + k * n + m * n))
    backward = backward_cost(context)
    assert backward is not None and backward.flops == 4 * m * n * k
    assert backward.bytes == 4 * (2 * m * k + 2 * k * n + m * n)
    assert forward_cost(place("MatMul", ((m, k), (k, n)), [(m, n)])).flops == 2 * m * n * k


def test_groups_and_bias_count() -> None:
    """Depthwise, each feature reads one channel; a bias is one addition for each element."""
    context = place("Conv", ((2, 8, 6, 6), (8, 1, 3, 3), (8,)), [(2, 8, 4, 4)], {"group": 8})
    assert forward_cost(context).flops == 2 * 2 * 8 * 16 * 9 + 2 * 8 * 16


BATCHES = ((2, 3, 4), (3,), (3,), (3,), (3,))
BY_HAND: list[tuple[NodeContext, int]] = [
    (place("Conv", ((2, 3, 9, 8), (4, 3, 3, 2)), [(2, 4, 7, 7)]), 2 * 2 * 4 * 3 * 3 * 2 * 7 * 7),
    (place("ConvTranspose", ((2, 4, 7, 7), (4, 3, 3, 2)), [(2, 3, 9, 8)]), 2 * 2 * 4 * 3 * 3 * 2 * 7 * 7),
    (place("Add", ((4, 1), (1, 5)), [(4, 5)]), 20),
    (place("Sum", ((4, 5),) * 3, [(4, 5)]), 40),
    (place("Mean", ((4, 5),) * 3, [(4, 5)]), 60),
    (place("Relu", ((4, 5),), [(4, 5)]), 20),
    (place("ReduceMean", ((4, 5),), [(4, 1)]), 20),
    (place("ReduceL2", ((4, 5),), [(4, 1)]), 40),
    (place("Softmax", ((4, 5),), [(4, 5)]), 100),
    (place("Reshape", ((4, 5), (1,)), [(20,)]), 0),
    (place("Gather", ((4, 5), (2,)), [(2, 5)]), 0),
    (place("Cast", ((4, 5),), [(4, 5)]), 0),
    (place("Einsum", ((2, 3), (3, 4)), [(2, 4)], {"equation": "ij,jk->ik"}), 2 * 2 * 3 * 4),
    (place("Einsum", ((2, 3),), [(3, 2)], {"equation": "ij->ji"}), 0),
    (place("Einsum", ((2, 3),), [(2,)], {"equation": "ij->i"}), 6),
    (place("Einsum", ((2,), (3,)), [(2, 3)], {"equation": "i,j->ij"}), 6),
    (place("MaxPool", ((1, 2, 6, 6),), [(1, 2, 3, 3)], {"kernel_shape": (2, 2)}), 18 * 4),
    (place("LpPool", ((1, 2, 6, 6),), [(1, 2, 3, 3)], {"kernel_shape": (2, 2)}), 18 * 8),
    (place("GlobalAveragePool", ((1, 2, 6, 6),), [(1, 2, 1, 1)]), 72),
    (place("BatchNormalization", BATCHES, [(2, 3, 4)]), 2 * 24),
    (place("BatchNormalization", BATCHES, [(2, 3, 4)], {"training_mode": 1}), 7 * 24),
    (place("BatchNormalization", BATCHES, [(2, 3, 4)], {"training_mode": 1}, evaluating=True), 2 * 24),
    (place("LayerNormalization", ((2, 4), (4,)), [(2, 4)]), 7 * 8),
    (place("RMSNormalization", ((2, 4), (4,)), [(2, 4)]), 4 * 8),
    (place("Dropout", ((2, 4), (), ()), [(2, 4)]), 16),
    (place("Dropout", ((2, 4),), [(2, 4)]), 0),
    # T = 5, B = 2, I = 3, H = 4: the products of four gates, and 3 · 4 + 5 operations for each hidden unit
    (place("LSTM", ((5, 2, 3), (1, 16, 3), (1, 16, 4)), [(5, 1, 2, 4)]), 10 * (2 * 16 * 7 + 17 * 4)),
    (place("GRU", ((5, 2, 3), (1, 12, 3), (1, 12, 4)), [(5, 1, 2, 4)]), 10 * (2 * 12 * 7 + 14 * 4)),
    (place("RNN", ((5, 2, 3), (2, 4, 3), (2, 4, 4)), [(5, 2, 2, 4)]), 2 * 10 * (2 * 4 * 7 + 3 * 4)),
    # 2 sequences, 4 heads, 3 queries, 5 keys: 2 · (6 + 7) for the products, 6 for scale and softmax
    (place("Attention", ((2, 4, 3, 6), (2, 2, 5, 6), (2, 2, 5, 7)), [(2, 4, 3, 7)]), 120 * (2 * 13 + 6)),
    (
        place(
            "Attention",
            ((2, 3, 24), (2, 5, 12), (2, 5, 14)),
            [(2, 3, 28)],
            {"q_num_heads": 4, "kv_num_heads": 2, "is_causal": 1},
        ),
        120 * (2 * 13 + 7),
    ),
    (place("RotaryEmbedding", ((2, 3, 4, 6), (2, 4, 3), (2, 4, 3)), [(2, 3, 4, 6)]), 3 * 144),
    (place("Resize", ((1, 1, 4, 4), None, (4,)), [(1, 1, 8, 8)], {"mode": "linear"}), 4 * 32 + 4 * 64),
    (place("Resize", ((1, 1, 4, 4), None, (4,)), [(1, 1, 8, 8)]), 0),
    (place("SoftmaxCrossEntropyLoss", ((6, 10), (6,)), [()]), 5 * 60 + 2 * 6),
    (place("MeanSquaredError", ((6, 10), (6, 10)), [()]), 180),
]  # fmt: skip


@pytest.mark.parametrize(("context", "flops"), BY_HAND, ids=[str(context.node) for context, _ in BY_HAND])
def test_operations_counted_by_hand(context: NodeContext, flops: int) -> None:
    """The conventions that `d5ray.ops.counting.flops` states; the bytes are those of all tensors."""
    tensors = [each for each in (*context.inputs, *context.outputs) if each is not None]
    assert forward_cost(context) == NodeCost(flops, sum(4 * math.prod(each.sizes) for each in tensors))


def test_bytes_follow_the_type() -> None:
    """16-bit numbers take half, and labels have no gradient."""
    half = place("MatMul", ((8, 8), (8, 8)), [(8, 8)], dtype="bfloat16")
    assert forward_cost(half).bytes == 3 * 128 and forward_cost(half).intensity == 1024 / 384
    scores, labels = TensorDescriptor("float32", (4, 3)), TensorDescriptor("int64", (4,))
    loss = NodeContext(
        Node("NegativeLogLikelihoodLoss", ("x", "t"), ("l",)),
        inputs=(scores, labels),
        outputs=(TensorDescriptor("float32", ()),),
    )
    assert forward_cost(loss).bytes == 48 + 32 + 4
    backward = backward_cost(loss)
    assert backward is not None and backward.bytes == 48 + 32 + 4 + 48


def test_every_type_has_a_cost() -> None:
    """And every one that has a gradient a cost backwards; comparisons have none but Where."""
    assert set(_FORWARD) == TYPES
    assert set(_BACKWARD) <= TYPES
    assert backward_cost(place("Shape", ((2, 3),), [(2,)])) is None
    without = {*WITHOUT_GRADIENT, "Mod"}
    assert without == TYPES - set(_BACKWARD)


def test_what_is_not_known_is_named() -> None:
    """A descriptor that is missing, a size that is open, a type that nobody has."""
    known = TensorDescriptor("float32", (2, 2))
    with pytest.raises(ConfigurationError, match=r"cost of MatMul cannot be told: give .* its input 'b'"):
        forward_cost(NodeContext(Node("MatMul", ("a", "b"), ("y",)), inputs=(known,), outputs=(known,)))
    opened = TensorDescriptor("float32", ("batch", 2))
    with pytest.raises(ConfigurationError, match="give its sizes"):
        forward_cost(NodeContext(Node("Relu", ("a",), ("y",)), inputs=(opened,), outputs=(opened,)))
    own = NodeContext(Node("Relu", ("a",), ("y",), domain="mine"), inputs=(known,), outputs=(known,))
    with pytest.raises(ConfigurationError, match=r"how many operations mine\.Relu takes is not known"):
        forward_cost(own)
    with pytest.raises(ConfigurationError, match="Convv takes is not known; did you mean 'Conv'"):
        forward_cost(place("Convv", ((2,),), [(2,)]))
