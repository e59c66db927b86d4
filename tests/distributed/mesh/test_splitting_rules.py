"""Claims about the rules of split networks: an operator makes of parts what it makes of the whole"""

from collections.abc import Iterator

import numpy as np
import pytest

from d5ray.networks.splitting.divisions import ByColumns, ByRows
from d5ray.networks.splitting.traffic import exchanges
from tests.distributed.forming import Former, former
from tests.distributed.sketches import CASES, gathered_table
from tests.distributed.splits import BOUNDS, check_split

PARTS = 2


@pytest.fixture(scope="module")
def groups() -> Iterator[Former]:
    with former() as made:
        yield made


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
