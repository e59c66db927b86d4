"""The facts that an event tells of a group that was formed again"""

from collections.abc import Mapping
from typing import Any

from d5ray.distributed.checkpoints.rollback import NOTHING, RestartPoint


def described(group: int, agreed: Mapping[int, RestartPoint], one_model: bool) -> dict[str, Any]:
    """The facts: whose state was taken, who lacked how many steps, the hashes. agreed: by rank."""
    ranks = sorted(agreed)
    found = agreed[ranks[0]]
    steps = dict(zip(ranks, found.steps, strict=True))
    facts: dict[str, Any] = {
        "group": group,
        "members": ranks,
        "source": ranks[found.source],
        "behind": {rank: found.step - done for rank, done in steps.items() if NOTHING < done < found.step},
        "new": [rank for rank, done in steps.items() if done == NOTHING],
        "one_model": one_model,
        "anew": found.anew,
    }
    if one_model:
        facts["sha256"] = {rank: agreed[rank].sha256 for rank in ranks}
    return facts
