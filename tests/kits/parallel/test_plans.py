"""Claims about plans of split networks: what they find, what they divide, and the words of refusals"""

import re
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.kits.parallel.splitting.divisions import ByColumns, ByHeads, ByInputChannels, ByRows, BySamples
from d5ray.kits.parallel.splitting.layouts import WHOLE, Divided, part_of, whole_of
from d5ray.kits.parallel.splitting.plans import FullyConnectedSplit, TransformerSplit
from d5ray.kits.parallel.splitting.splitting import Splitting
from d5ray.networks.layers.from_layers import network_from_layers
from d5ray.networks.layers.layers import Conv, Flatten, Linear, Relu
from d5ray.networks.network import Network
from tests.frameworks.small_networks import case

MLP, LENET, TRANSFORMER = (case(name).network for name in ("mlp", "lenet", "transformer"))


def test_fully_connected_layers_are_divided_in_turns() -> None:
    """The first by columns and the second by rows; a third alone by columns, where the parts divide them."""
    assert FullyConnectedSplit().plan(LENET, 2) == {"7": ByColumns(), "9": ByRows(), "11": ByColumns()}
    assert FullyConnectedSplit().plan(LENET, 3) == {"7": ByColumns(), "9": ByRows()}
    assert FullyConnectedSplit(BySamples()).plan(LENET, 3) == {
        "0": BySamples(),
        "3": BySamples(),
        "7": ByColumns(),
        "9": ByRows(),
    }


def test_a_block_of_a_transformer_is_divided_by_heads_and_by_columns_and_rows() -> None:
    plan = TransformerSplit().plan(TRANSFORMER, 2)
    assert plan == {
        f"{place}.body.{name}": division
        for place in (2, 4)
        for place, name, division in (
            (place, "1.into.product", ByColumns()),
            (place, "1.mixed", ByHeads()),
            (place, "1.out.product", ByRows()),
            (place + 1, "1.product", ByColumns()),
            (place + 1, "3.product", ByRows()),
        )
    }


def test_queries_keys_and_values_are_blocks() -> None:
    """The layer that makes all three side by side is divided in three blocks: a Split stands behind it."""
    splitting = Splitting(TRANSFORMER, TransformerSplit(), 2)
    assert splitting.parameters["2.body.1.into.weight"] == Divided(0, blocks=3)
    assert splitting.parameters["2.body.1.into.bias"] == Divided(0, blocks=3)
    assert splitting.parameters["2.body.1.out.weight"] == Divided(1)
    assert splitting.parameters["2.body.1.out.bias"] == splitting.parameters["0.weight"] == WHOLE
    shapes = dict(
        zip(
            *(d5.networks.parameter_table(splitting)[each].to_pylist() for each in ("parameter", "layout")),
            strict=True,
        )
    )
    assert shapes["2.body.1.into.weight"] == "divided along axis 0 in 3 blocks"
    assert shapes["0.weight"] == "the same on all parts"


def test_a_parameter_that_is_read_in_two_ways_is_whole() -> None:
    """Tied weights: an embedding that is read by rows, and the same table as a layer by its columns."""
    network = Network("tied")
    network.add_input("x", d5.TensorDescriptor("int64", ("batch", 3)))
    table = network.add_parameter("table", np.ones((8, 6), np.float32))
    network.add_node(d5.Node("Gather", (table, "x"), ("chosen",), name="embedding"))
    network.add_node(d5.Node("Transpose", (table,), ("turned",), {"perm": (1, 0)}))
    network.add_node(d5.Node("MatMul", ("chosen", "turned"), ("scores",), name="scores"))
    network.add_output("scores")
    alike = Splitting(network, {"embedding": ByRows(), "scores": ByColumns()}, 2)
    assert alike.parameters["table"] == Divided(0)
    for plan in ({"embedding": ByColumns(), "scores": ByColumns()}, {"scores": ByColumns()}):
        assert Splitting(network, plan, 2).parameters["table"] == WHOLE


def test_a_part_has_its_share_of_the_parameters() -> None:
    """joined and divided are each other's inverse, and the parts of a network hold what `divided` says."""
    splitting = Splitting(TRANSFORMER, TransformerSplit(), 4)
    whole = TRANSFORMER.parameters
    parts = [splitting.part(index).parameters for index in range(4)]
    for index, part in enumerate(parts):
        assert list(part) == list(whole)
        for name, value in splitting.divided(whole, index).items():
            np.testing.assert_array_equal(part[name], value)
    for name, value in splitting.joined(parts).items():
        np.testing.assert_array_equal(value, whole[name])
    share = sum(value.size for value in parts[0].values()) / sum(value.size for value in whole.values())
    assert 0.3 < share < 0.5  # the embeddings, the last layer and the normalizations are whole


@pytest.mark.parametrize("layout", [Divided(1, blocks=2), Divided(0, blocks=3), WHOLE])
@pytest.mark.parametrize("parts", [2, 4])
def test_parts_of_a_value_are_the_value(layout: Any, parts: int) -> None:
    value = np.random.default_rng(1).standard_normal((24, 16, 8))
    shares = [part_of(value, layout, index, parts) for index in range(parts)]
    np.testing.assert_array_equal(whole_of(shares, layout), value)
    if layout is not WHOLE:
        assert {share.size for share in shares} == {value.size // parts}


IMAGES = network_from_layers(
    (Conv(6, kernel=3, padding=0, groups=3), Relu(), Conv(4, kernel=1, padding=0), Flatten(), Linear(5)),
    (3, 4, 4),
    {
        "0.weight": np.ones((6, 1, 3, 3)),
        "0.bias": np.ones(6),
        "2.weight": np.ones((4, 6, 1, 1)),
        "2.bias": np.ones(4),
        "4.weight": np.ones((5, 16)),
        "4.bias": np.ones(5),
    },
)
WRONG: dict[str, tuple[Network, Any, int, str]] = {
    "an unknown node": (MLP, {"fc": ByColumns()}, 2, "has no node 'fc': known: "),
    "columns": (
        MLP,
        {"5": ByColumns()},
        3,
        "the node 5 (Gemm) has 10 columns, which 3 parts do not divide: take one of 1, 2, 5, 10 parts",
    ),
    "blocks of columns": (
        MLP,
        {"3": ByColumns(blocks=4)},
        2,
        "has 12 columns in 4 blocks, which 2 parts do not divide: take one of 1, 3 parts",
    ),
    "inputs of groups": (
        IMAGES,
        {"0": ByInputChannels()},
        3,
        "are in 3 groups: divide it by ByOutputChannels()",
    ),
    "a convolution by columns": (
        LENET,
        {"0": ByColumns()},
        2,
        "the node 0 (Conv) cannot be divided by ByColumns(blocks=None), which is for Gather, Gemm, MatMul; "
        "Conv takes ByOutputChannels(), ByInputChannels(), BySamples()",
    ),
    "an operator without a rule": (
        LENET,
        {"loss": BySamples()},
        2,
        "this operator has no rule: it is computed whole on every part; leave it out of the plan",
    ),
    "statistics by samples": (
        case("resnet8").network,
        {"1": BySamples()},
        2,
        "in training it normalizes with the mean and variance of the whole batch",
    ),
    "twice": (TRANSFORMER, {"3.body.1": ByRows(), "3.body.1.product": ByRows()}, 2, "twice: name it once"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_plan_is_refused_with_what_to_do(name: str) -> None:
    network, plan, parts, words = WRONG[name]
    with pytest.raises(ConfigurationError, match=re.escape(words)):
        Splitting(network, plan, parts)


def test_a_part_that_is_not_there_and_values_that_are_not_those_of_all_parts() -> None:
    splitting = Splitting(MLP, {"1": ByColumns(), "3": ByRows()}, 2)
    with pytest.raises(ConfigurationError, match="there is no part 2 of 2: give an integer from 0 to 1"):
        splitting.part(2)
    with pytest.raises(ConfigurationError, match=r"the values of 1 parts, and the network is in 2"):
        splitting.joined([MLP.parameters])
    with pytest.raises(ConfigurationError, match="different names"):
        splitting.joined([MLP.parameters, {}])
    with pytest.raises(
        ConfigurationError, match=r"'1.weights' is no parameter or state of the network: did you"
    ):
        splitting.divided({"1.weights": np.ones(2)}, 0)
    with pytest.raises(ConfigurationError, match="give its open sizes, such as"):
        d5.networks.exchange_table(splitting, {})
