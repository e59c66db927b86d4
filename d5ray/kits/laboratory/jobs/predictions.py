"""Closed forms of what one exchange of a gradient costs, in latencies and bytes (Hockney's model)"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final


@dataclass(frozen=True)
class PredictedExchange(ABC):
    """Every agent's gradient goes in, and what all make of it comes out, on a network of equal links."""

    @abstractmethod
    def seconds(self, agents: int, payload_bytes: float, latency: float, seconds_per_byte: float) -> float:
        """T for P agents and γm bytes, with L, `latency` (s) of a message, and G, `seconds_per_byte`."""


@final
@dataclass(frozen=True)
class ServerExchange(PredictedExchange):
    """T = 2 L + 2 P (γm/s) G: each of s shards takes a part of every agent's, and sends as much back."""

    shards: int = 1

    def seconds(self, agents: int, payload_bytes: float, latency: float, seconds_per_byte: float) -> float:
        return 2 * latency + 2 * agents * payload_bytes / self.shards * seconds_per_byte


@final
@dataclass(frozen=True)
class AllreduceExchange(PredictedExchange):
    """T = 2 L log₂ P + 2 γm G (P−1)/P: halving and doubling.

    (Rabenseifner, doi 10.1007/978-3-540-24685-5_1)
    """

    def seconds(self, agents: int, payload_bytes: float, latency: float, seconds_per_byte: float) -> float:
        share = (agents - 1) / agents
        return 2 * latency * math.log2(agents) + 2 * payload_bytes * seconds_per_byte * share
