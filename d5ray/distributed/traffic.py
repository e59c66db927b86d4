"""Traffic: the counts of what an agent sent and received"""

from dataclasses import dataclass


@dataclass
class Traffic:
    """Bytes, messages and rounds that this member sent and received since the start, sub-groups included.

    Bytes are payload as it travels, without the transport's headers. With the latency α and the time per
    byte β of a network, α · rounds + β · bytes_received predicts the time.
    """

    bytes_sent: int = 0
    bytes_received: int = 0
    messages_sent: int = 0
    rounds: int = 0  # message latencies that follow one another
    operations: int = 0
    nanoseconds: int = 0  # spent in operations, waiting included; of background operations the wait alone

    def add(self, other: "Traffic") -> None:
        """Count what another count holds."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
