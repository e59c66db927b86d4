"""Loaders of an agent's batches: directly, or in threads ahead of the step that needs them"""

import traceback
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from d5ray.errors import D5Error, DataError, first_line
from d5ray.networks.executors.trees import Tree, leaves, rows
from d5ray.training.batches.batch import Batch
from d5ray.training.datasets.dataset import Split
from d5ray.training.datasets.samples import IGNORED, Labels, Samples, check_taken
from d5ray.training.samplers.shards import Draw
from d5ray.training.transformations.composition import Transformations, at_test, has_pixels, transformed

PIECE_BYTES = 1 << 26  # of test samples that are read at a time
PIECE_SAMPLES = 1024

Prepared = tuple[Tree, Labels]  # inputs, an array or a tree of them, and labels


class Loader:
    """Batches of a split, transformed, in the order of the draws.

    With `ahead` > 0 that many batches are prepared while the step computes, by as many threads as `threads`;
    the batches are the same as without. Where preparing is no more than copying out of memory there is no
    thread, since handing over takes longer than that.

    Unless labels may be `masked`, one that a loss is to ignore is an error.

    What fails while a batch is prepared is raised by `next`, for the step that would have had the batch.
    """

    def __init__(
        self,
        samples: Samples,
        transformations: Transformations = (),
        *,
        seed: int = 0,
        ahead: int = 0,
        threads: int = 1,
        masked: bool = True,
    ) -> None:
        self._samples = samples.opened()
        self._transformations = transformations
        self._seed = seed
        self._masked = masked or isinstance(samples, Split)  # which the experiment has looked at
        self._ahead = 0 if samples.in_memory and not transformations else ahead
        self._threads = 1 if samples.in_order else max(1, min(threads, ahead))
        self._draws: Iterator[Draw] = iter(())
        self._coming: deque[tuple[Draw, Future[Prepared]]] = deque()
        self._pool: ThreadPoolExecutor | None = None

    def start(self, draws: Iterator[Draw]) -> None:
        """Go on with these draws; batches prepared for others are dropped."""
        self._drop()
        self._draws = draws

    def next(self, step: int) -> Batch:
        """The batch of the next draw. Raises `DataError` that names the sample which cannot be had."""
        if not self._ahead:
            draw = next(self._draws)
            inputs, labels = self._prepare(draw)
        else:
            while len(self._coming) <= self._ahead:
                self._begin(next(self._draws))
            draw, future = self._coming.popleft()
            inputs, labels = future.result()
        return Batch(
            inputs=inputs,
            labels=labels,
            weight=draw.weight,
            step=step,
            epoch=draw.epoch,
            ends_epoch=draw.ends_epoch,
        )

    def close(self) -> None:
        """Let the threads end, with the batch that they are at; `start` and `next` begin anew."""
        self._drop()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def _drop(self) -> None:
        for _, future in self._coming:
            future.cancel()
        self._coming.clear()

    def _begin(self, draw: Draw) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="loader")
        self._coming.append((draw, self._pool.submit(self._prepare, draw)))

    def _prepare(self, draw: Draw) -> Prepared:
        if not self._transformations and self._samples.in_memory:
            return taken(self._samples, draw.indices)
        try:
            return self._made(draw.indices, draw.epoch)
        except D5Error:
            raise
        except Exception as error:
            index = self._first_to_fail(draw)
            text = "".join(traceback.format_exception(error, limit=-4)).rstrip()
            raise DataError(
                f"training sample {index} cannot be prepared in epoch {draw.epoch}: {first_line(error)}; "
                f"see what it is with take([{index}]), or mend the transformation:\n{text}"
            ) from error

    def _made(self, indices: npt.NDArray[np.int64], epoch: int) -> Prepared:
        inputs, labels = taken(self._samples, indices, epoch)
        if not self._masked and labels.dtype.kind == "i" and (wrong := labels == IGNORED).any():
            raise DataError(
                f"training sample {indices[np.argwhere(wrong)[0, 0]]} has a label of {IGNORED}, which the "
                "loss does not ignore: take loss=d5.operators.MaskedCrossEntropyLoss(), or leave it out"
            )
        if not self._transformations and not has_pixels(inputs):
            return inputs, labels
        done = transformed(self._transformations, inputs, labels, indices, seed=self._seed, epoch=epoch)
        return done.inputs, done.labels

    def _first_to_fail(self, draw: Draw) -> str:
        for index in () if self._samples.in_order else draw.indices:
            try:
                self._made(np.array([index]), draw.epoch)
            except Exception:
                return str(index)
        return f"{draw.indices[0]} or one of the {len(draw.indices) - 1} with it"


def taken(samples: Samples, indices: npt.NDArray[np.int64], epoch: int | None = None) -> Prepared:
    """The samples with these indices, as they are; raises `DataError` for what no batch can be made of."""
    found = samples.take(indices) if epoch is None else samples.take_in(epoch, indices)
    return found if isinstance(samples, Split) else check_taken(samples, found, len(indices))


def pieces_to_test(
    samples: Samples, transformations: Transformations = (), at_most: int | None = None
) -> Iterator[Prepared]:
    """A test split as the network gets it, in pieces that fit the memory: inputs (n, ...), labels (n, ...).

    Where it lies in memory as it is, nothing is copied, and it is one piece unless `at_most` says how many
    samples a piece may have.
    """
    lasting = at_test(transformations)
    if samples.in_memory and not lasting:
        count = at_most or len(samples)
        for begin in range(0, len(samples), count):
            yield (
                rows(samples.inputs, slice(begin, begin + count)),
                samples.labels[begin : begin + count],
            )
        return
    numbers = sum(int(np.prod(shape, dtype=int)) for _, shape in leaves(samples.sample_shape))
    sample_bytes = 4 * max(1, numbers)
    count = max(1, min(at_most or PIECE_SAMPLES, PIECE_BYTES // sample_bytes))
    for begin in range(0, len(samples), count):
        indices = np.arange(begin, min(begin + count, len(samples)), dtype=np.int64)
        inputs, labels = taken(samples, indices)
        done = transformed(lasting, inputs, labels, indices, seed=0, epoch=0)
        yield done.inputs, done.labels
