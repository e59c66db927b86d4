"""LoadingExecutor: takes samples and batches of a data set, and times them

A plain class, launched as an actor.
"""

from collections.abc import Callable, Iterator
from typing import Any, final

import numpy as np

from d5ray.actors.executors.call_timer import CallTimer, ProblemTiming
from d5ray.actors.metrics.exporter import MetricsExporter
from d5ray.kits.laboratory.bench.loaded_data import AskedData, LoadingProblem, samples_of
from d5ray.operators.framework import Call
from d5ray.training.batches.loader import Loader
from d5ray.training.datasets.samples import Samples
from d5ray.training.samplers.sampler import ShuffleSampler
from d5ray.training.samplers.shards import Shards


@final
class LoadingExecutor:
    """One way to decode samples, in a process of its own.

    decoder: its name, and what stands first in the scope of rows; attempt: the number of the fresh process.
    """

    def __init__(
        self,
        data: AskedData,
        decoder: str,
        run_id: str,
        attempt: int,
        rank: int,
        seed: int,
        exporter: MetricsExporter | None = None,
    ) -> None:
        self._decoder, self._data, self._seed = decoder, data, seed
        self._timer = CallTimer(repr(self), decoder, run_id, attempt, rank, exporter)

    def __repr__(self) -> str:
        return f"LoadingExecutor({self._decoder})"

    def prepare(self) -> dict[str, str]:
        """Load the data set; gives what it is."""
        self._samples: Samples = samples_of(self._data.found(), self._decoder)
        return {"data_samples": str(len(self._samples)), "data_sample": str(self._samples.sample_shape)}

    def measure(
        self, problem: LoadingProblem, seconds: float, most_seconds: float, _keep: bool = False
    ) -> ProblemTiming:
        """Time a sample or a batch for about `seconds`; see `CallTimer.measure`. No loader is kept."""
        loader = Loader(self._samples, seed=self._seed, ahead=problem.ahead, threads=problem.workers)
        made = self._of_samples if problem.alone else self._of_batches(loader, problem.batch)
        try:
            return self._timer.measure(problem, made, _nothing, seconds, most_seconds)
        finally:
            loader.close()

    def _of_samples(self) -> Call:
        """A call that takes the next sample of a shuffled order."""
        order = self._order()
        return lambda: self._samples.take(next(order))

    def _order(self) -> Iterator[Any]:
        sampler, count, epoch = ShuffleSampler(), len(self._samples), 0
        while True:
            for index in sampler.order(count, epoch=epoch, seed=self._seed):
                yield np.array([index])
            epoch += 1

    def _of_batches(self, loader: Loader, batch: int) -> Callable[[], Call]:
        """What gives a call that takes the next full batch, as an agent that does nothing else would."""

        def made() -> Call:
            shards = Shards(len(self._samples), 1, batch, ShuffleSampler(), self._seed)
            loader.start(draw for draw in shards.draws(0) if len(draw.indices) == batch)
            return lambda: loader.next(0)

        return made


def _nothing() -> None:
    """Loading ends when it returns: there is no device to wait for."""
