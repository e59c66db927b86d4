"""Claims about the rules of split networks: an operator makes of parts what it makes of the whole

Small networks in which one operator gets what is divided: from samples to a loss, weights on the way.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from d5ray.kits.parallel.splitting.divisions import ByColumns, ByOutputChannels, ByRows, Division
from d5ray.kits.parallel.splitting.traffic import exchanges
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from tests.distributed.forming import Former
from tests.kits.parallel.splits import BOUNDS, check_split

Array = np.ndarray[Any, Any]
Drawn = Callable[["Sketch", str], str]  # from what is divided to what the loss reads


class Sketch:
    """A network that grows; numbers are float64, and always the same."""

    def __init__(self) -> None:
        self.network = Network("sketch")
        self._random = np.random.default_rng(3)

    def numbers(self, *shape: int) -> Array:
        return self._random.standard_normal(shape)

    def input(self, *shape: int) -> str:
        return self.network.add_input("x", TensorDescriptor("float64", ("batch", *shape)))

    def weights(self, *shape: int) -> str:
        return self.network.add_parameter(f"w{len(self.network.parameters)}", 0.5 * self.numbers(*shape))

    def constant(self, value: Any) -> str:
        return self.network.add_constant(f"c{len(self.network.constants)}", np.asarray(value))

    def node(self, kind: str, *inputs: str, name: str = "", count: int = 1, **attributes: Any) -> str:
        """One more; gives its first output, the others are called like it: "t", "t.1", "t.2"."""
        first = f"t{len(self.network.nodes)}"
        outputs = (first, *(f"{first}.{place}" for place in range(1, count)))
        self.network.add_node(Node(kind, inputs, outputs, attributes, name))
        return first

    def loss(self, tensor: str) -> None:
        """A weighted sum of all elements of its tanh."""
        shape = self.network.descriptors[tensor].shape or ()
        weights = self.constant(self.numbers(*(size for size in shape[1:] if isinstance(size, int))))
        weighted = self.node("Mul", self.node("Tanh", tensor), weights)
        total = self.node("ReduceSum", weighted, keepdims=0)
        self.network.rename(total, "loss")
        self.network.add_output("loss")


@dataclass(frozen=True)
class Case:
    """network: from x (batch, *shape). gathers: how often something is put together from the parts."""

    network: Network
    shape: tuple[int, ...]
    plan: dict[str, Division]
    gathers: int

    def given(self) -> dict[str, Array]:
        return {"x": np.random.default_rng(7).standard_normal((6, *self.shape))}


def features(drawn: Drawn, gathers: int = 0, width: int = 12) -> Case:
    """(batch, width), divided along axis 1."""
    sketch = Sketch()
    hidden = sketch.node("Gemm", sketch.input(5), sketch.weights(5, 8), sketch.weights(8))
    made = sketch.node("Gemm", hidden, sketch.weights(8, width), sketch.weights(width), name="divided")
    sketch.loss(drawn(sketch, made))
    return Case(sketch.network, (5,), {"divided": ByColumns()}, gathers)


def sequences(drawn: Drawn, gathers: int = 0, width: int = 12, blocks: int | None = None) -> Case:
    """(batch, 4, width), divided along axis 2."""
    sketch = Sketch()
    hidden = sketch.node("MatMul", sketch.input(4, 5), sketch.weights(5, 8))
    made = sketch.node("MatMul", hidden, sketch.weights(8, width), name="divided")
    sketch.loss(drawn(sketch, made))
    return Case(sketch.network, (4, 5), {"divided": ByColumns(blocks)}, gathers)


def images(drawn: Drawn, gathers: int = 0) -> Case:
    """(batch, 8, 6, 6), divided along axis 1."""
    sketch = Sketch()
    pads = (1, 1, 1, 1)
    hidden = sketch.node("Conv", sketch.input(2, 6, 6), sketch.weights(3, 2, 3, 3), pads=pads)
    made = sketch.node(
        "Conv", hidden, sketch.weights(8, 3, 3, 3), sketch.weights(8), name="divided", pads=pads
    )
    sketch.loss(drawn(sketch, made))
    return Case(sketch.network, (2, 6, 6), {"divided": ByOutputChannels()}, gathers)


def _of_shape(kind: str, target: tuple[int, ...]) -> Drawn:
    return lambda s, t: s.node(kind, t, s.constant(np.asarray(target, np.int64)))


def _axes(*axes: int) -> Array:
    return np.asarray(axes, np.int64)


def _composed_attention(s: Sketch, t: str) -> str:
    """(batch, 4, 3 · 4 heads · 2) taken apart by a Reshape, as it is exported from PyTorch."""
    apart = s.node("Reshape", t, s.constant(_axes(0, 4, 3, 4, 2)))
    each = s.node("Split", apart, count=3, axis=2, num_outputs=3)
    heads = [
        s.node("Transpose", s.node("Squeeze", name, s.constant(_axes(2))), perm=(0, 2, 1, 3))
        for name in (each, f"{each}.1", f"{each}.2")
    ]
    turned = s.node("Transpose", heads[1], perm=(0, 1, 3, 2))
    scores = s.node("Add", s.node("MatMul", heads[0], turned), s.constant(s.numbers(1, 1, 4, 4)))
    mixed = s.node("MatMul", s.node("Softmax", scores), heads[2])
    return s.node("Reshape", s.node("Transpose", mixed, perm=(0, 2, 1, 3)), s.constant(_axes(0, 4, 8)))


def _attention(s: Sketch, t: str) -> str:
    """Of 4 heads of queries and 4 of keys and values, with a mask for each of them."""
    each = s.node("Split", t, count=3, axis=-1, num_outputs=3)
    mask = s.constant(s.numbers(1, 4, 4, 4))
    return s.node("Attention", each, f"{each}.1", f"{each}.2", mask, q_num_heads=4, kv_num_heads=4)


def _grouped_attention(s: Sketch, t: str) -> str:
    """(batch, heads, positions, size): 6 heads of queries, of which 3 share one of keys and values."""
    heads = s.node("Transpose", s.node("Reshape", t, s.constant(_axes(0, 4, 6, 2))), perm=(0, 2, 1, 3))
    pairs = s.node(
        "ReduceMax",
        s.node("Reshape", heads, s.constant(_axes(0, 2, 3, 4, 2))),
        s.constant(_axes(2)),
        keepdims=0,
    )
    return s.node("Attention", heads, pairs, pairs, is_causal=1)


def _rotary(s: Sketch, t: str) -> str:
    """By a right angle, of small integers: ONNX has it for float32 alone, and that is exact."""
    angles = [s.constant(np.full((1, 1), each, np.float32)) for each in (0, 1)]
    places = s.constant(np.zeros((6, 4), np.int64))
    exact = s.node("Cast", s.node("Round", s.node("Mul", t, s.constant(8.0))), to=1)
    turned = s.node("RotaryEmbedding", exact, *angles, places, num_heads=6)
    return s.node("Mul", s.node("Cast", turned, to=11), t)


def _shape_of_whole(s: Sketch, t: str) -> str:
    """Sizes that are computed are those of the whole."""
    sizes = s.node("Cast", s.node("Shape", t, start=1), to=11)
    count = s.node("Cast", s.node("Size", t), to=11)
    return s.node("Div", s.node("Mul", t, s.node("ReduceSum", sizes)), count)


def _normalized(s: Sketch, t: str) -> str:
    for name, value in (("mean", np.zeros(8)), ("variance", np.ones(8))):
        s.network.add_state(name, value)
    weights = [s.weights(8), s.weights(8), "mean", "variance"]
    return s.node("BatchNormalization", t, *weights, count=3, training_mode=1)


def _in_rows(s: Sketch, t: str) -> str:
    """A division that a whole weight undoes: t (batch, 12) @ w, then rows of the transpose."""
    return s.node(
        "Transpose", s.node("MatMul", s.node("Transpose", t, perm=(1, 0)), s.weights(6, 6)), perm=(1, 0)
    )


CASES: dict[str, Callable[[], Case]] = {
    "bias and slope": lambda: features(
        lambda s, t: s.node("PRelu", s.node("Add", t, s.weights(12)), s.weights(1))
    ),
    "constants": lambda: features(lambda s, t: s.node("Mul", t, s.constant(s.numbers(12)))),
    "a computed tensor beside": lambda: features(
        lambda s, t: s.node("Add", t, s.node("Gemm", "x", s.weights(5, 12))), gathers=1
    ),
    "a computed column beside": lambda: features(
        lambda s, t: s.node("Mul", t, s.node("Gemm", "x", s.weights(5, 1)))
    ),
    "clip": lambda: features(lambda s, t: s.node("Clip", t, s.constant(-0.5), s.constant(0.5))),
    "cast": lambda: features(lambda s, t: s.node("CastLike", s.node("Cast", t, to=11), "x")),
    "where": lambda: features(
        lambda s, t: s.node("Where", s.node("Greater", t, s.constant(0.0)), t, s.constant(s.numbers(1, 12)))
    ),
    "softmax along it": lambda: features(lambda s, t: s.node("Softmax", t), gathers=1),
    "softmax beside it": lambda: sequences(lambda s, t: s.node("Softmax", t, axis=1)),
    "layer normalization": lambda: sequences(
        lambda s, t: s.node("LayerNormalization", t, s.weights(12), s.weights(12)), gathers=1
    ),
    "a rearranged layer normalization": lambda: sequences(
        lambda s, t: s.node(
            "LayerNormalization", s.node("Transpose", t, perm=(0, 2, 1)), s.weights(4), s.weights(4)
        )
    ),
    "sum over it": lambda: sequences(lambda s, t: s.node("ReduceSum", t, s.constant(_axes(2)))),
    "mean over it": lambda: sequences(
        lambda s, t: s.node("ReduceMean", t, s.constant(_axes(1, 2)), keepdims=0)
    ),
    "mean beside it": lambda: sequences(
        lambda s, t: s.node("ReduceMean", t, s.constant(_axes(1)), keepdims=0)
    ),
    "maximum over it": lambda: sequences(
        lambda s, t: s.node("ReduceMax", t, s.constant(_axes(2))), gathers=1
    ),
    "sums are added": lambda: features(
        lambda s, t: s.node(
            "Add", *(s.node("ReduceSum", s.node(kind, t), s.constant(_axes(1))) for kind in ("Sin", "Cos"))
        )
    ),
    "cumulative sum": lambda: sequences(lambda s, t: s.node("CumSum", t, s.constant(np.asarray(1)))),
    "largest": lambda: sequences(lambda s, t: s.node("TopK", t, s.constant(_axes(2)), count=2, axis=1)),
    "a composed attention": lambda: sequences(_composed_attention, width=24, blocks=3),
    "an attention": lambda: sequences(_attention, width=24),
    "a grouped attention": lambda: sequences(_grouped_attention),
    "rotary embedding": lambda: sequences(_rotary),
    "to heads and back": lambda: sequences(
        lambda s, t: s.node(
            "Reshape", s.node("Reshape", t, s.constant(_axes(-1, 4, 6, 2))), s.constant(_axes(0, 0, 12))
        )
    ),
    "a reshape that mixes": lambda: features(_of_shape("Reshape", (0, 3, 4)), gathers=1),
    "squeeze and unsqueeze": lambda: sequences(
        lambda s, t: s.node(
            "Squeeze", s.node("Unsqueeze", t, s.constant(_axes(1, -1))), s.constant(_axes(1, 4))
        )
    ),
    "concat along it": lambda: features(
        lambda s, t: s.node("Mul", s.node("Concat", t, s.node("Neg", t), axis=1), s.weights(24))
    ),
    "concat beside it": lambda: sequences(
        lambda s, t: s.node("Concat", t, s.constant(s.numbers(6, 1, 12)), axis=1)
    ),
    "split along it": lambda: features(
        lambda s, t: s.node(
            "Mul", *[s.node("Split", s.node("Concat", t, t, axis=1), count=2, axis=1, num_outputs=2)] * 2
        )
    ),
    "a split that mixes": lambda: features(
        lambda s, t: s.node("Split", t, s.constant(_axes(5, 7)), count=2, axis=1), gathers=1
    ),
    "slice along it": lambda: features(
        lambda s, t: s.node("Slice", t, s.constant(_axes(2)), s.constant(_axes(9)), s.constant(_axes(1))),
        gathers=1,
    ),
    "slice beside it": lambda: sequences(
        lambda s, t: s.node("Slice", t, s.constant(_axes(1)), s.constant(_axes(3)), s.constant(_axes(1)))
    ),
    "a table's rows beside it": lambda: sequences(
        lambda s, t: s.node(
            "Add",
            t,
            s.node(
                "Slice", s.weights(7, 12), s.constant(_axes(1)), s.constant(_axes(5)), s.constant(_axes(0))
            ),
        )
    ),
    "pad": lambda: images(lambda s, t: s.node("Pad", t, s.constant(_axes(0, 0, 1, 1, 0, 0, 1, 1)))),
    "expand": lambda: features(
        lambda s, t: s.node(
            "Expand", s.node("Unsqueeze", t, s.constant(_axes(1))), s.constant(_axes(1, 3, 12))
        )
    ),
    "tile": lambda: sequences(lambda s, t: s.node("Tile", t, s.constant(_axes(1, 2, 1)))),
    "triangle": lambda: images(lambda s, t: s.node("Trilu", t)),
    "sizes": lambda: features(_shape_of_whole),
    "gather along it": lambda: features(
        lambda s, t: s.node("Gather", t, s.constant(_axes(3, 0)), axis=1), gathers=1
    ),
    "gather beside it": lambda: sequences(
        lambda s, t: s.node("Gather", t, s.constant(np.asarray(1)), axis=1)
    ),
    "einsum": lambda: sequences(lambda s, t: s.node("Einsum", t, t, equation="blw,bmw->blm")),
    "rows of a product": lambda: features(_in_rows),
    "batch normalization": lambda: images(_normalized),
    "group normalization": lambda: images(
        lambda s, t: s.node("GroupNormalization", t, s.weights(8), s.weights(8), num_groups=4)
    ),
    "one group": lambda: images(
        lambda s, t: s.node("GroupNormalization", t, s.weights(8), s.weights(8), num_groups=1), gathers=1
    ),
    "instance normalization": lambda: images(
        lambda s, t: s.node("InstanceNormalization", t, s.weights(8), s.weights(8))
    ),
    "a depthwise convolution": lambda: images(
        lambda s, t: s.node("Conv", t, s.weights(16, 1, 3, 3), s.weights(16), group=8)
    ),
    "a convolution in groups, transposed": lambda: images(
        lambda s, t: s.node("ConvTranspose", t, s.weights(8, 3, 2, 2), s.weights(12), group=4, strides=(2, 2))
    ),
    "a whole convolution behind": lambda: images(
        lambda s, t: s.node("Conv", t, s.weights(4, 8, 1, 1)), gathers=1
    ),
    "pooling": lambda: images(
        lambda s, t: s.node("Flatten", s.node("MaxPool", t, kernel_shape=(2, 2), strides=(2, 2)))
    ),
    "depth to space": lambda: images(lambda s, t: s.node("DepthToSpace", t, blocksize=2), gathers=1),
}


def gathered_table(division: ByColumns | ByRows) -> Case:
    """Tokens of a vocabulary of 8, some counted from its end, by a table with 6 columns."""
    sketch = Sketch()
    network = sketch.network
    network.add_input("x", TensorDescriptor("int64", ("batch", 3)))
    table = network.add_parameter("table", sketch.numbers(8, 6))
    network.add_node(Node("Gather", (table, "x"), ("chosen",), {}, "divided"))
    sketch.loss(sketch.node("Mul", "chosen", sketch.weights(6)))
    return Case(network, (3,), {"divided": division}, 0)


PARTS = 2


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("name", CASES)
def test_an_operator_on_parts(groups: Former, framework: str, name: str) -> None:
    """Loss and gradients are the whole network's, and only what needs the whole is gathered."""
    case = CASES[name]()
    made, found = check_split(
        groups.members, framework, case.network, case.plan, PARTS, case.given(), BOUNDS["float64"]
    )
    listed = exchanges(made)
    assert [each.operations[0] for each in found] == [len(listed)] * PARTS
    gathered = [each for each in listed if each.collective == "all_gather" and each.direction == "forward"]
    assert len(gathered) == case.gathers


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("division", [ByColumns(), ByRows()], ids=["columns", "rows"])
def test_a_table_of_embeddings(groups: Former, framework: str, division: ByColumns | ByRows) -> None:
    """By columns nothing travels before the loss; by rows what is chosen is a sum, also from the end."""
    case = gathered_table(division)
    tokens = np.random.default_rng(2).integers(-8, 8, (5, 3))
    made, _ = check_split(
        groups.members, framework, case.network, case.plan, PARTS, {"x": tokens}, BOUNDS["float64"]
    )
    assert [each.collective for each in exchanges(made)] == ["allreduce"]
    assert made.divided(case.network.parameters, 1)["table"].shape == (
        (8, 3) if isinstance(division, ByColumns) else (4, 6)
    )
