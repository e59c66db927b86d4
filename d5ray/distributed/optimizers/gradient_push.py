"""Push-sum by messages: what an agent gives away arrives when it arrives"""

from abc import abstractmethod
from collections import Counter, deque
from typing import Any, final

from d5ray.checks import check_count
from d5ray.distributed.one_sided.peers import PeerMessage
from d5ray.distributed.optimizers.exchange import ExchangeVia
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.topologies.requirements import ColumnStochasticWeights, Connected
from d5ray.frameworks.host import host_view
from d5ray.training.arrays import copy_of
from d5ray.training.batches.batch import Batch

SMALLEST_WEIGHT = 2.0**-20  # w that an agent keeps while nothing comes in


class GradientPush(DistributedOptimizer):
    """u changes by the gradient;  P_ji (u, w) goes to every j, P_ii (u, w) stays;  (u, w) ← + what has come;
    z = u / w.

    P are the topology's column-stochastic weights of the round; w₀ = 1. What all agents and the messages
    under way hold adds up: Σ w = n, and Σ u changes by the gradients alone; a message that cannot be
    delivered comes back and stays. self.x is z, where the gradient is taken and which is evaluated; u is w z,
    so that messages are (z, P_ji w), and what comes enters a weighted mean of z, in which bits that agree
    stay. An agent that has done its steps goes on without gradients until all have done theirs: else what
    comes to it would be lost to the others, and what they learn from then on to it. Decentralized and
    inconsistent; the base optimizer's state is each agent's own. A dead agent takes its (u, w) with it, and
    messages that it had taken in: Σ w is less than n from then on, and z, a ratio, means what it did. One
    that is started again brings w = 1.
    """

    needs = (Connected(), ColumnStochasticWeights())
    exchange = ExchangeVia.PEERS
    invariant = "mass"

    def start(self) -> None:
        self.w = host_view(copy_of(self.x[:1]))
        self.w[...] = 1

    @final
    def step(self, batch: Batch) -> None:
        self.descend(self.gradient(batch))
        self.mix(batch.step)

    def idle_round(self, round: int) -> None:
        self.mix(round)

    def finish(self) -> None:
        self._take_in(self.come_early())

    @final
    def mix(self, round: int) -> None:
        """Give shares of (u, w) away, and take in what this round takes in."""
        w, targets = self.w, self.peers.neighbors(round)
        shares = self._shares(round, targets) if w[0] > SMALLEST_WEIGHT else {}
        for target, share in shares.items():
            self.peers.send(target, self.x, share * w)
        w *= 1.0 - sum(shares.values())
        self._take_in(self.come(round))

    @abstractmethod
    def descend(self, gradient: Any) -> None:
        """The base optimizer's update of u, or of z with u = w z."""

    def come(self, round: int) -> list[PeerMessage]:
        """The messages that this round takes in: those that have come."""
        return self.peers.receive()

    def come_early(self) -> list[PeerMessage]:
        """Messages that are there already and may be taken in between two rounds."""
        return self.peers.receive()

    def _take_in(self, messages: list[PeerMessage]) -> None:
        """(u, w) ← + the messages:  w ← w + w_j;  z ← z − (w_j / w) (z − z_j), one after the other."""
        z, w = host_view(self.x), self.w
        for message in sorted(messages, key=lambda message: message.source):
            w += message.arrays[1]
            z -= message.arrays[1] / w * (z - message.arrays[0])

    def _shares(self, round: int, targets: tuple[int, ...]) -> dict[int, float]:
        """The weights of this agent's (u, w) for each target; equal where the graph has lost somebody."""
        if self.peers.gone:
            return dict.fromkeys(targets, 1 / (1 + len(targets)))
        column = self.peers.topology.weights(round)[:, self.peers.rank]
        return {target: float(column[target]) for target in targets}


@final
class AsynchronousGradientPush(GradientPush):
    """Push-sum whose agents take in whatever has come, at their own pace:  z ← z − η g(z), u = w z.

    (Assran and Rabbat, arXiv:1803.08950, where u ← u − η g(z): with agents of different speed the w of a fast
    one, whose shares wait at a slow one, is small, and that step by −η g / w too large. Here the step of z is
    −η g, and Σ u changes by −η Σ w g.) Asynchronous. An agent whose w is below 2⁻²⁰ gives nothing away until
    something comes. With w ≡ 1 it is `StochasticGradientPush`.
    """

    def descend(self, gradient: Any) -> None:
        self.apply(gradient)


@final
class OverlapSGP(GradientPush):
    """Push-sum whose messages may be s = `staleness` steps late: step k waits for those of step k − s.

    (Overlap SGP: Assran et al., arXiv:1811.10792.) Computing goes on while messages travel. Asynchronous with
    bounded staleness s; with s = 0 it is `StochasticGradientPush`. When an agent is lost, or comes late,
    others send in its place and nobody knows how many messages to wait for: it goes on as
    `AsynchronousGradientPush`.
    """

    def __init__(self, staleness: int = 1) -> None:
        check_count("staleness", staleness, low=0)
        self.staleness = staleness

    def start(self) -> None:
        super().start()
        self.sent = Counter[int]()  # messages of the steps up to this one, by source
        self.awaited = Counter[int]()  # of those up to this one − s
        self.late: deque[tuple[int, ...]] = deque()

    def descend(self, gradient: Any) -> None:
        apply_to_numerator(self, gradient, float(self.w[0]) if self.peers.complete else 1.0)

    def idle_round(self, round: int) -> None:
        if not self.peers.complete:  # else all end within s steps of each other
            super().idle_round(round)

    def come_early(self) -> list[PeerMessage]:
        return self.peers.receive(most=self.sent if self.peers.complete else None)

    def come(self, round: int) -> list[PeerMessage]:
        if not self.peers.complete:
            return self.peers.receive()
        sources = self.peers.topology.in_neighbors(self.peers.rank, round)
        self.sent.update(sources)
        self.late.append(sources)
        if len(self.late) > self.staleness:
            self.awaited.update(self.late.popleft())
        return self.peers.receive(wait_for=self.awaited, most=self.sent)


def apply_to_numerator(rule: DistributedOptimizer, gradient: Any, w: float) -> None:
    """u ← U(g, u), the base optimizer's update of u = w z, where x is z; what U leaves, z keeps."""
    if w == 1.0:
        rule.apply(gradient)
        return
    z = copy_of(rule.x)
    rule.x *= w
    u = copy_of(rule.x)
    rule.apply(gradient)
    rule.x = z - (u - rule.x) / w
