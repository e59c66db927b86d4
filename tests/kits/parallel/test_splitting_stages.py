"""Claims about split networks in stages: every place has a stage's share, and together they train"""

import numpy as np
import pytest

from d5ray.distributed.communicators.communicator import Communicator
from d5ray.kits.parallel.executors import piece_executor_by_name
from d5ray.kits.parallel.splitting.plans import TransformerSplit
from d5ray.kits.parallel.splitting.splitting import Splitting
from d5ray.kits.parallel.stages.cut import Cut
from d5ray.kits.parallel.stages.cutting import pieces
from d5ray.networks.executors.labelled_network import labelled
from d5ray.networks.layers.from_layers import network_from_layers
from d5ray.networks.network import Network
from d5ray.networks.zoo import catalogue
from d5ray.operators.collectives import Collectives
from tests.distributed.forming import Former, on_all
from tests.frameworks.small_networks import FRAMEWORKS, LOSS, Array, case
from tests.kits.parallel.chained import Chain, chain, divided
from tests.kits.parallel.splits import close

PARTS = 2
BOUND = {"numpy": 1e-10, "torch": 1e-10, "tensorflow": 2e-8}


def transformer(dropout: float) -> tuple[Network, Cut]:
    """Of two blocks, with its loss; and a cut, of which a stage begins within an attention."""
    layers = catalogue.network("transformer", (7,), 11, width=16, heads=4, dropout=dropout)
    behind = 1 if dropout else 0  # one layer more, behind the embedding
    values = {}
    for name, value in case("transformer", "float64").network.parameters.items():
        place, _, rest = name.partition(".")
        values[f"{int(place) + behind * (int(place) > 1)}.{rest}"] = value
    network = labelled(network_from_layers(layers, (7,), values), LOSS, (7,)).network
    return network, Cut((f"{3 + behind}.body.0", f"{4 + behind}.body.1.mixed"))


def one_step(made: Chain, batches: list[dict[str, Array]]) -> tuple[float, dict[str, Array]]:
    """The second of two passes, with what a first one has drawn before it."""
    for each in made.places:
        each.draw_from(5, 0)
    made.train(*batches)
    loss = made.train(*batches)
    made.inference(batches[0])
    return loss, made.gradients()


@pytest.mark.parametrize("recompute", [False, True], ids=["kept", "recomputed"])
@pytest.mark.parametrize("framework", [*FRAMEWORKS[:2], pytest.param("tensorflow", marks=pytest.mark.slow)])
def test_stages_of_parts_train_the_whole(groups: Former, framework: str, recompute: bool) -> None:
    """Three stages of two parts and three micro-batches, against one piece of the whole network."""
    dropout = 0.0 if framework == "torch" else 0.3  # threads share PyTorch's generator
    network, cut = transformer(dropout)
    batches = divided(case("transformer", "float64").given, 2, 3, 1)
    splitting = Splitting(network, TransformerSplit(), PARTS)

    def one(member: Communicator) -> tuple[float, dict[str, Array]]:
        own, together = pieces(splitting.part(member.rank), cut), Collectives()
        make = piece_executor_by_name(framework)
        made = Chain([make([each], recompute=recompute, collectives=together) for each in own])
        together.communicator = member  # after they were made, as agents join
        return one_step(made, batches)

    expected, whole = one_step(chain(framework, network, Cut(())), batches)
    found = on_all(groups.members("shared_memory", PARTS), one, 240)
    np.testing.assert_allclose([loss for loss, _ in found], expected, rtol=BOUND[framework])
    close(splitting.joined([gradients for _, gradients in found]), whole, BOUND[framework])
