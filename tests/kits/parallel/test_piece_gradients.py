"""Claims about pieces of a network: chained by hand they are the network uncut, whatever the cut"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from d5ray.frameworks.initial_values import network_by_name
from d5ray.kits.parallel.stages.balanced import Balanced
from d5ray.kits.parallel.stages.cut import Cut, Cutting, order
from d5ray.kits.parallel.stages.cutting import pieces
from d5ray.networks.executors.labelled_network import labelled
from d5ray.networks.network import Network
from tests.frameworks.small_networks import FRAMEWORKS, LOSS, case, error, executor
from tests.kits.parallel.chained import ONE, Batch, Chain, chain, check_same, divided, tied_network, uncut

WITHIN = {"float32": 1e-5, "float64": 1e-10}
every_framework = pytest.mark.parametrize("framework", FRAMEWORKS)
quick_frameworks = pytest.mark.parametrize("framework", ["numpy", "torch"])


def of(place: int) -> Any:
    """The marks of a framework that need not be here."""
    return FRAMEWORKS[place].marks  # type: ignore[attr-defined]


def every_node(network: Network) -> Cut:
    """A stage for each node; also for those that only turn weights around."""
    return Cut({node.name: place for place, node in enumerate(order(network))})


def check_cuts(framework: str, name: str, dtype: str, cuts: Sequence[Cutting]) -> None:
    made = case(name, dtype)
    network = made.network
    expected = uncut(framework, network, made.given)
    scores = executor(framework, network.copy()).inference({"input": made.inputs})
    for cut in cuts:
        under_test = chain(framework, network, cut)
        found = under_test.inference({"input": made.inputs})
        assert found.keys() == scores.keys()
        assert error(found["output"], scores["output"]) < WITHIN[dtype]
        check_same(under_test, under_test.train(made.given), expected, WITHIN[dtype])


@pytest.mark.parametrize(
    ("framework", "name", "dtype"),
    [
        *(("numpy", name, "float64") for name in ("mlp", "lenet", "resnet8", "transformer", "lstm", "unet")),
        *(("torch", name, "float64") for name in ("lenet", "resnet8", "transformer")),
        ("torch", "transformer", "float32"),
        pytest.param(*("tensorflow", "lenet", "float64"), marks=of(2)),
        *(pytest.param("cupy", name, "float32", marks=of(3)) for name in ("lenet", "resnet8", "transformer")),
    ],
)
def test_pieces_give_the_gradients_of_the_whole(framework: str, name: str, dtype: str) -> None:
    """Loss, gradients, running statistics and scores, with 2 and 3 stages and one for every node.

    Three stages alone where building the code of a piece takes its time.
    """
    cuts: list[Cutting] = [Balanced(3)]
    if framework == "numpy" or name == "lenet":
        cuts += [Balanced(2), every_node(case(name, dtype).network)]
    check_cuts(framework, name, dtype, cuts)


@quick_frameworks
@pytest.mark.parametrize("name", ["lenet", "resnet8"])
@pytest.mark.parametrize("sizes", [(2, 2, 2), (1, 2, 3)])
def test_micro_batches_add_up(framework: str, name: str, sizes: tuple[int, ...]) -> None:
    """Cut as uncut; and where no statistics of the batch are taken, as the whole batch at once."""
    made = case(name, "float64")
    parts = divided(made.given, *sizes)
    whole = chain(framework, made.network, ONE)
    expected = whole.train(*parts), whole.gradients(), whole.state()
    under_test = chain(framework, made.network, Balanced(3))
    check_same(under_test, under_test.train(*parts), expected, 1e-10)
    if name == "lenet":
        check_same(under_test, expected[0], uncut(framework, made.network, made.given), 1e-10)


def dropping(seed: int = 1) -> tuple[Network, Batch]:
    """A transformer with dropout, and tokens."""
    options = {"width": 8, "heads": 2, "depth": 2, "dropout": 0.4}
    network = labelled(network_by_name("transformer", options, (5,), 7, seed=seed), LOSS, (5,)).network
    tokens = np.random.default_rng(2).integers(0, 7, (4, 5))
    return network, {"input": tokens, "labels": tokens[:, ::-1].copy()}


@pytest.mark.parametrize(
    "framework",
    [
        "numpy",
        "torch",
        pytest.param("tensorflow", marks=[*of(2), pytest.mark.slow]),
        pytest.param("cupy", marks=of(3)),
    ],
)
def test_what_is_drawn_does_not_depend_on_the_cut(framework: str) -> None:
    """With masks of Dropout, the same loss and gradients under every cut, and with recomputation."""
    network, batch = dropping()
    parts = divided(batch, 2, 2)
    whole = chain(framework, network, ONE)
    losses = [whole.train(*parts) for _ in range(2)]
    gradients = whole.gradients()
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)  # passes draw anew
    for cut, recompute in ((Balanced(2), False), (Balanced(4), False), (Balanced(3), True)):
        under_test = chain(framework, network, cut, recompute=recompute)
        assert [under_test.train(*parts) for _ in range(2)] == pytest.approx(losses, rel=1e-5)
        for name, value in under_test.gradients().items():
            assert error(value, gradients[name]) < 1e-5, name


@quick_frameworks
def test_what_is_drawn_follows_from_seed_replica_pass_and_micro_batch(framework: str) -> None:
    """Each of them changes it, and the state of the random numbers brings it back."""
    network, batch = dropping()
    part = divided(batch, 2, 2)[0]

    def losses(made: Chain) -> list[float]:
        made.train(part, part)
        return [float(each["loss"]) for each in made.results]

    first = chain(framework, network, Balanced(2), seed=3, replica=0)
    found = [*losses(first), *losses(first)]
    found += losses(chain(framework, network, Balanced(2), seed=4, replica=0))
    found += losses(chain(framework, network, Balanced(2), seed=3, replica=1))
    assert len(set(found)) == 8
    state = [each.random_state() for each in first.places]
    third = losses(first)
    later = chain(framework, network, Balanced(2), seed=3, replica=0)
    for each, own in zip(later.places, state, strict=True):
        each.set_random_state(own)
    assert losses(later) == third


@every_framework
def test_tied_weights_and_ways_around_stages(framework: str) -> None:
    """A table is read by the first and the last of four stages, and a tensor passes by two of them."""
    network, batch = tied_network()
    cut = Cut(("multiply", "bend", "go_around"))
    own = pieces(network, cut)
    assert [dict(piece.tied) for piece in own] == [{"table": (0, 3)}, {}, {}, {"table": (0, 3)}]
    assert own[0].outgoing == {"vectors": (1, 3)} and own[3].incoming == {"vectors": 0, "hidden": 2}
    assert "turn" in [node.name for node in own[3].network.nodes]  # read there, made there
    under_test = chain(framework, network, cut)
    check_same(under_test, under_test.train(batch), uncut(framework, network, batch), 1e-10)
