"""Invariants: what the steps of a rule conserve, in any order and through every death; each names its own"""

from typing import Final

from d5ray.errors import ConfigurationError, nearest

ONE_MODEL: Final = "one model"

# Over the agents that are there; a dead one takes its part with it.
INVARIANTS: Final = {
    ONE_MODEL: "all agents have the same x, to the last bit, after every step that `equal_after` names",
    "mean": "the mean of x over the agents changes by the mean of their updates, and by nothing else",
    "tracking": "Σ y = Σ g over the agents, and the mean of x changes by the updates alone",
    "mass": "Σ u and Σ w, with the letters under way, change by the updates alone; every x is u / w",
    "ledger": "the servers' parameters are the first ones and what every push brought, each once",
    "centre": "Σ x + centre changes by the agents' own updates alone: what the centre gains an agent gives",
    "one array": "all agents have one x in memory; an update may be lost in single coordinates",
    "ages": "a model is a convex combination of those that met in it; its age is the most updates behind one",
    "none": "nothing; the class says why",
}


def check_invariant(kind: type, found: object) -> None:
    """Raise `ConfigurationError` where a class names an invariant that there is not."""
    if found not in INVARIANTS:
        raise ConfigurationError(
            f"{kind.__name__} has invariant = {found!r}, which is none; {nearest(found, INVARIANTS)}"
        )
