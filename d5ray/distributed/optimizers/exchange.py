"""What a class of distributed optimizers says of itself: how agents communicate, what the steps conserve"""

import warnings
from enum import Flag, auto
from typing import Any, Final

from d5ray.checks import check_kind
from d5ray.errors import ConfigurationError, nearest

ONE_MODEL: Final = "one model"

# Over the agents that are there; a dead one takes its part with it.
INVARIANTS: Final = {
    ONE_MODEL: "all agents have the same x, to the last bit, after every step that `equal_after` names",
    "mean": "the mean of x over the agents changes by the mean of their updates, and by nothing else",
    "tracking": "Σ y = Σ g over the agents, and the mean of x changes by the updates alone",
    "mass": "Σ u and Σ w, with the messages under way, change by the updates alone; every x is u / w",
    "ledger": "the servers' parameters are the first ones and what every push brought, each once",
    "centre": "Σ x + centre changes by the agents' own updates alone: what the centre gains an agent gives",
    "one array": "all agents have one x in memory; an update may be lost in single coordinates",
    "ages": "a model is a convex combination of those that met in it; its age is the most updates behind one",
    "none": "nothing; the class says why",
}


class ExchangeVia(Flag):
    """The means by which agents communicate in a step: collectives only, or others, joined by |."""

    COLLECTIVES = 0
    SERVERS = auto()
    PEERS = auto()
    SHARED_MEMORY = auto()


# What said so in earlier versions, in classes of users and in pickles of these.
FORMER_NAMES: Final = {"untrained": "buffer_policy", "linger": "idle_round", "lingers": "has_idle_rounds"}
FORMER_FLAGS: Final = {
    "uses_server": ExchangeVia.SERVERS,
    "uses_peers": ExchangeVia.PEERS,
    "shares_parameters": ExchangeVia.SHARED_MEMORY,
}


def derive(kind: Any) -> None:
    """Set what a class of distributed optimizers does not say itself, and its means of exchange imply."""
    if flags := adopt_former_flags(kind):
        words = " | ".join(f"d5.{means}" for means in kind.exchange) or "d5.ExchangeVia.COLLECTIVES"
        warnings.warn(
            f"{kind.__name__} sets {', '.join(flags)}, which goes with the next release: write exchange = "
            f"{words}",
            DeprecationWarning,
            stacklevel=4,  # the statement `class`
        )
    for name in adopt_former_names(kind):
        warnings.warn(
            f"{kind.__name__} sets {name}, which is {FORMER_NAMES[name]} now; the old name goes with the "
            "next release",
            DeprecationWarning,
            stacklevel=4,
        )
    implied = {"has_idle_rounds": True} if "idle_round" in vars(kind) else {}
    if "exchange" in vars(kind):
        check_kind("exchange", kind.exchange, ExchangeVia, "an ExchangeVia such as ExchangeVia.SERVERS")
        implied["asynchronous"] = kind.exchange != ExchangeVia.COLLECTIVES
        implied["replayable"] = ExchangeVia.SHARED_MEMORY not in kind.exchange
    if "invariant" in vars(kind):
        check_invariant(kind, kind.invariant)
        implied["one_model"] = kind.invariant == ONE_MODEL
    for name, value in implied.items():
        if name not in vars(kind):
            setattr(kind, name, value)


def check_invariant(kind: type, found: object) -> None:
    """Raise `ConfigurationError` where a class names an invariant that there is not."""
    if found not in INVARIANTS:
        raise ConfigurationError(
            f"{kind.__name__} has invariant = {found!r}, which is none; {nearest(found, INVARIANTS)}"
        )


def adopt_former_names(kind: Any) -> list[str]:
    """Give a class what it says under an attribute's name of earlier versions under the present one, too.

    Returns the former names.
    """
    former = [name for name, now in FORMER_NAMES.items() if name in vars(kind) and now not in vars(kind)]
    for name in former:
        setattr(kind, FORMER_NAMES[name], vars(kind)[name])
    return former


def adopt_former_flags(kind: Any) -> list[str]:
    """Give a class with flags of earlier versions the exchange that they mean; nothing else changes.

    Returns its flags.
    """
    flags = [name for name in FORMER_FLAGS if name in vars(kind)]
    if not flags or "exchange" in vars(kind):
        return []
    for name in flags:
        means = FORMER_FLAGS[name]
        kind.exchange = kind.exchange | means if vars(kind)[name] else kind.exchange & ~means
    kind.asynchronous, kind.replayable = kind.asynchronous, kind.replayable  # as they are, not as implied
    return flags
