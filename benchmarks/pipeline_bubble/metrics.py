"""The bubble of pipelines that were measured side by side"""

from dataclasses import dataclass
from typing import final

from d5ray.metrics.definitions.pipelines import BubbleShare
from d5ray.metrics.definitions.side_by_side import OfAContender


@final
@dataclass(frozen=True)
class BubbleShareOf(OfAContender):
    """The share of a contender's passes in which its stages neither compute nor send."""

    name = "bubble_share"
    recorded = BubbleShare.name
    unit = "1"
    kind = "ratio"
    aggregation = "median over passes, median over fresh processes"
    description = "the share of a pipeline's pass in which the stages of this contender wait"
