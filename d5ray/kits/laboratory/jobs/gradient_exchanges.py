"""The job that compares ways to average gradients over a slow network: as they are, and compressed"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import final

from d5ray.checks import check_number
from d5ray.distributed.compression.compressor import Compressor
from d5ray.distributed.compression.reductions import Reduction, reduction_of
from d5ray.errors import ConfigurationError
from d5ray.frameworks.torch import from_model
from d5ray.kits.laboratory.comparisons.contenders import Contender, RankSeries
from d5ray.kits.laboratory.comparisons.side_by_side import SideBySide
from d5ray.kits.laboratory.jobs import slow_network
from d5ray.kits.laboratory.jobs.averaging import Averaging, Exchanged, Slots
from d5ray.kits.laboratory.metrics.exchanges import GRADIENT_TIME
from d5ray.metrics.definitions.catalogue import BytesSent
from d5ray.networks.executors.flat_buffers import Slot
from d5ray.networks.zoo.catalogue import NETWORKS, check_network_name
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss

GROUP_SECONDS = 240.0  # for one group to start, exchange everything and end
SAMPLE_SHAPE, CLASSES = (3, 32, 32), 10
MATRIX = "1M floats"  # a gradient that is one matrix of a thousand rows and columns


@final
@dataclass(frozen=True, kw_only=True)
class GradientExchanges(SideBySide):
    """Contenders that average gradients. Wrong values raise `ConfigurationError`.

    gradients  names of networks, whose gradients for images of 3 × 32 × 32 are exchanged, or "1M floats"
    megabits   of every link, in 10⁶ bit/s
    seconds    about so long every group repeats each exchange
    """

    gradients: tuple[str, ...]
    megabits: float = 100.0
    seconds: float = 0.5

    cpus = 0  # outside Ray

    def check(self) -> None:
        for name in ("megabits", "seconds"):
            check_number(name, getattr(self, name), low=0.0, low_included=False)
        if not isinstance(self.gradients, tuple) or not self.gradients:
            known = ", ".join(map(repr, (*NETWORKS, MATRIX)))
            raise ConfigurationError(
                f"gradients is {self.gradients!r}: it must be a tuple of some of {known}"
            )
        for name in self.gradients:
            if name != MATRIX:
                check_network_name(name)

    @cached_property
    def slots(self) -> dict[str, Slots]:
        """The tensors of each gradient."""
        return {name: _slots(name) for name in self.gradients}

    def series(self, found: list[dict[str, Exchanged]]) -> list[RankSeries]:
        """The measurements of a group's members, by rank, as rows."""
        return [
            series
            for rank, own in enumerate(found)
            for name, (times, sent) in own.items()
            for series in (
                RankSeries.of(times, GRADIENT_TIME, name, rank=rank),
                RankSeries(BytesSent.name, BytesSent.unit, rank, [sent], phase="run", at=name),
            )
        ]


@final
@dataclass(frozen=True)
class Averaged(Contender[GradientExchanges]):
    """Agents on hosts of their own, over sockets. compression: as `CompressedSGD` takes it, or None.

    encrypted: whether they speak under TLS.
    """

    word: str
    processes: int
    compression: Compressor | Reduction | None = None
    encrypted: bool = True

    def missing(self) -> str:
        return slow_network.missing()

    def measure(self, job: GradientExchanges, folder: Path) -> list[RankSeries]:
        reduction = None if self.compression is None else reduction_of(self.compression)
        with slow_network.limited(self.processes, job.megabits) as hosts:
            work = Averaging(
                reduction, tuple(hosts), folder, job.slots, job.seconds, job.seed, self.encrypted
            )
            return job.series(slow_network.measured(work, folder, hosts, GROUP_SECONDS))


def _slots(name: str) -> Slots:
    """The tensors of a gradient."""
    if name == MATRIX:
        return (Slot("matrix", 0, (1000, 1000)),)
    loss = SoftmaxCrossEntropyLoss()
    made = from_model(name, {}, sample_shape=SAMPLE_SHAPE, classes=CLASSES, loss=loss, seed=0, threads=1)
    return made.slots
