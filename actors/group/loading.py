"""Loading: a thread reads the data set and the environment of a run while Ray starts"""

from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Final, Self, final

import pyarrow as pa

from d5ray.experiment import Experiment
from d5ray.metrics.probes.environment import capture
from d5ray.training.datasets.dataset import Dataset

MISSING_SECONDS: Final = 0.05  # in which a data set that is not there is noticed
WAIT_SECONDS: Final = 10.0  # for git, which tells the environment, or a data set


@final
class Loading:
    """The data set, its fingerprint and this machine's environment, as futures.

    A context manager: leaving it waits for what is under way, which must not outlive a start that failed.
    """

    def __init__(self, experiment: Experiment) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1)
        self.dataset: Future[Dataset] = self._thread.submit(load_meanwhile, experiment)
        self.environment: Future[dict[str, str]] = self._thread.submit(capture)
        pandas = self._thread.submit(pa.array, [""])  # imports it, which takes a moment
        self.fingerprint: Future[str] = self._thread.submit(lambda: self.dataset.result().fingerprint)
        self._all: tuple[Future[Any], ...] = self.dataset, self.environment, pandas, self.fingerprint

    def check(self) -> None:
        """Raise what loading the data set has raised already: missing files are noticed before Ray starts."""
        if wait([self.dataset], timeout=MISSING_SECONDS).done:
            self.dataset.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        under_way = [each for each in self._all if not each.cancelled()]
        if not wait(under_way, timeout=WAIT_SECONDS).not_done:
            self._thread.shutdown()  # so that its thread has ended, too


def load_meanwhile(experiment: Experiment) -> Dataset:
    """The experiment's data set, by a thread beside which Ray starts.

    Ray forks this process, and a fork ends OpenBLAS's threads: a product that they compute just then would
    wait for them for ever. So products are computed by this thread alone.
    """
    import threadpoolctl  # noqa: PLC0415 - it changes the environment as it is imported

    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        return experiment.load_dataset()
