"""ExchangeVia: how agents communicate in a step, and what follows from that for a class"""

import warnings
from enum import Flag, auto
from typing import Any, Final

from d5ray.checks import check_kind
from d5ray.distributed.optimizers.invariants import ONE_MODEL, check_invariant


class ExchangeVia(Flag):
    """The means by which agents communicate in a step: collectives only, or others, joined by |."""

    COLLECTIVES = 0
    SERVERS = auto()
    PEERS = auto()
    SHARED_MEMORY = auto()


# What said so in earlier versions, in classes of users and in pickles of these.
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
    implied = {"lingers": True} if "linger" in vars(kind) else {}
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
