"""The job that compares parameter servers: agents push and pull arrays of several sizes"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from benchmarks.sizes import AtSizes
from d5ray.errors import AgentError
from d5ray.kits.laboratory.comparisons.contenders import RankSeries
from d5ray.kits.laboratory.metrics.rates import UPDATE_RATE

if TYPE_CHECKING:
    from benchmarks.server_speed.pushing_agents import Pushed

HASHED_AS = "d5ray.recipes.server_updates"  # where the first runs knew it


@final
@dataclass(frozen=True, kw_only=True)
class ServerUpdates(AtSizes):
    """Contenders that push and pull parameters. Wrong values raise `ConfigurationError`."""


def rates(size: str, done: "Sequence[Pushed]") -> list[RankSeries]:
    """What each agent did in a second, as rows."""
    return [
        RankSeries(
            UPDATE_RATE, "1/s", rank, [own.updates / own.seconds], phase="run", at=size, loops=own.updates
        )
        for rank, own in enumerate(done)
    ]


def check_parameters(
    name: str, found: Sequence[tuple[float, float]], done: "Sequence[Sequence[Pushed]]", learning_rate: float
) -> None:
    """Raise `AgentError` unless every push of every agent entered the parameters exactly once.

    found: smallest and largest of them. done: for each turn what each agent pushed, by rank.
    """
    expected = -learning_rate * sum(
        (rank + 1) * own.updates for turn in done for rank, own in enumerate(turn)
    )
    for low, high in found:
        if not low == high == expected:
            raise AgentError(
                f"{name} ends with parameters between {low:g} and {high:g} instead of {expected:g}: nothing "
                "is measured"
            )
