"""NodeSeeds: the seeds of what a network draws at random, which no cut of the network changes"""

from hashlib import blake2b
from typing import final

SEEDS = 2**63


@final
class NodeSeeds:
    """A seed for each node of each micro-batch: of (seed, replica, pass, micro-batch, the node's name).

    passes: how many have begun since `draw_from`.
    """

    def __init__(self) -> None:
        self.passes = 0
        self.begun = 0  # counted, so that a generator knows when it begins anew
        self._source = self._micro_batch = b""
        self.draw_from(0, 0)

    def draw_from(self, seed: int, replica: int) -> None:
        """Begin anew, from the first pass on."""
        self.passes = 0
        self._source = f"{seed}/{replica}".encode()
        self.begin(0)

    def begin_pass(self) -> None:
        """Count a pass: what is drawn from now on differs from the pass before."""
        self.passes += 1

    def begin(self, micro: int) -> None:
        """Draw for this micro-batch from now on; also where it is computed a second time."""
        self.begun += 1
        self._micro_batch = b"%s/%d/%d/" % (self._source, self.passes, micro)

    def seed_of(self, node: str) -> int:
        """The seed of a node in this pass and micro-batch, below 2^63."""
        digest = blake2b(self._micro_batch + node.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") % SEEDS
