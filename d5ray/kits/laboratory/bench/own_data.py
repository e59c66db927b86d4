"""DataBench: how quickly samples and batches of a data set are there, by decoder, workers and prefetching"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.kits.laboratory.bench import user_objects
from d5ray.kits.laboratory.bench.bench import Bench, check_numbers
from d5ray.kits.laboratory.bench.decoders import AS_IT_IS, check_decoder
from d5ray.kits.laboratory.bench.loaded_data import AskedData, LoadingProblem, samples_of
from d5ray.kits.laboratory.bench.loading import LoadingExecutor
from d5ray.kits.laboratory.metrics.operator_calls import LOADING_TIME
from d5ray.training.datasets.samples import Samples

MOST_BATCH, MOST_WORKERS, MOST_AHEAD = 1 << 20, 1024, 1 << 16
AHEAD_OF_A_WORKER = 2  # batches, unless asked


@final
@dataclass(frozen=True, kw_only=True)
class DataBench(Bench):
    """Samples and batches of a data set; see `Bench` for the other values.

    decoders  of its images, () for the data set's own way
    batches   sizes of a batch
    workers   threads that prepare batches, 0: none; () for 0, 1 and 2 where samples are not in memory
    ahead     batches that are prepared ahead with workers; () for two a worker
    """

    recipe: ClassVar[str] = "bench_data"
    metric: ClassVar[str] = LOADING_TIME
    has_peaks: ClassVar[bool] = False

    data: AskedData
    decoders: tuple[str, ...] = ()
    batches: tuple[int, ...] = (64,)
    workers: tuple[int, ...] = ()
    ahead: tuple[int, ...] = ()
    frameworks: tuple[str, ...] = field(init=False, default=())
    threads: int = field(init=False, default=1)

    def check(self) -> None:
        if len(set(self.decoders)) < len(self.decoders):
            raise ConfigurationError(f"the decoders are {', '.join(self.decoders)}: name none twice")
        for name in self.decoders:
            check_decoder(name)
        object.__setattr__(self, "frameworks", self.decoders or (AS_IT_IS,))
        check_numbers("--batch", self.batches, 1, MOST_BATCH)
        check_numbers("--workers", self.workers, 0, MOST_WORKERS, needed=False)
        check_numbers("--prefetch", self.ahead, 1, MOST_AHEAD, needed=False)
        samples = self._samples
        if samples.in_memory and any(self.workers):
            raise ConfigurationError(
                f"the samples of {self.data.name} lie in memory, where nothing is prepared ahead: leave "
                "--workers out"
            )
        if max(self.batches) > len(samples):
            raise ConfigurationError(
                f"--batch is {max(self.batches)}, and {self.data.name} has {len(samples)} samples: give a "
                "smaller one"
            )
        if self.ahead and min(self.ahead) < max(self._workers):
            raise ConfigurationError(
                f"--prefetch is {min(self.ahead)} for {max(self._workers)} workers: each prepares a batch of "
                f"its own, so give {max(self._workers)} or more"
            )
        for name in self.frameworks:
            self._try(name)

    @cached_property
    def _samples(self) -> Samples:
        with user_objects.naming(self.data.name, "cannot be loaded:"):
            return self.data.found()

    @property
    def _workers(self) -> tuple[int, ...]:
        return self.workers or ((0,) if self._samples.in_memory else (0, 1, 2))

    def _try(self, decoder: str) -> None:
        """Take a sample; raises `ConfigurationError` where that cannot be had, or is no number."""
        samples = samples_of(self._samples, decoder)
        with user_objects.naming(self.data.name, "gives no sample 0:"):
            inputs, _ = samples.take(np.array([0]))
        if inputs.dtype.kind == "f" and not np.isfinite(inputs).all():
            raise ConfigurationError(
                f"sample 0 of {self.data.name} has numbers that are not finite, by {decoder}: mend the data"
            )

    @cached_property
    def _problems(self) -> tuple[LoadingProblem, ...]:
        samples = self._samples
        inputs, _ = samples.take(np.array([0]))
        sample, dtype = tuple(samples.sample_shape), inputs.dtype.name
        made = [LoadingProblem(1, 0, 0, sample, dtype, alone=True)]
        for batch in self.batches:
            for workers in self._workers:
                for ahead in (self.ahead or (AHEAD_OF_A_WORKER * workers,)) if workers else (0,):
                    made.append(LoadingProblem(batch, workers, ahead, sample, dtype))
        return tuple(made)

    @property
    def sent(self) -> Any:
        return self.data

    def problems(self) -> Sequence[LoadingProblem]:
        return self._problems

    def executors(self, run: str, number: int) -> tuple[type, list[tuple[Any, ...]]]:
        return LoadingExecutor, [
            (self.data, name, run, number, rank, self.seed + number, self.exporter(run, name))
            for rank, name in enumerate(self.frameworks)
        ]

    @property
    def title(self) -> str:
        return f"bench data {self.data.name}"

    @property
    def fixed(self) -> dict[str, Any]:
        options = {name: str(value) for name, value in self.data.options.items()}
        return {
            "data": self.data.name,
            "options": options,
            "batches": list(self.batches),
            "device": self.device,
        }

    @property
    def mutable(self) -> dict[str, Any]:
        return {"workers": list(self.workers), "ahead": list(self.ahead), **super().mutable}
