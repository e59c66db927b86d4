"""Events that run the network on samples: learning curves, times of inference, qualities, wrong samples"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from time import perf_counter_ns
from typing import Any, final

import numpy as np
import pyarrow as pa

from d5ray.checks import check_count
from d5ray.networks.executors.trees import Tree, leaves, mapped
from d5ray.training.batches.loader import pieces_to_test
from d5ray.training.datasets.samples import IGNORED, Subset
from d5ray.training.events.event import Event, check_classifies, check_evaluates
from d5ray.training.events.moment import Moment


@final
class LearningCurves(Event):
    """Evaluates some training samples after every epoch: `training_loss` and `training_accuracy`.

    The report draws both with loss and accuracy on held-out samples, and so shows underfitting and
    overfitting.

    samples: of the training split, always the same ones, at equal distances; they get the transformations of
        test samples.
    """

    records = ("training_loss", "training_accuracy")

    def __init__(self, samples: int = 1024) -> None:
        check_count("samples", samples)
        self.samples = samples

    def after_epoch(self, moment: Moment) -> None:
        train = moment.dataset.train
        some = np.linspace(0, len(train) - 1, min(self.samples, len(train))).round().astype(np.int64)
        found = moment.executor.evaluate_pieces(pieces_to_test(Subset(train, some), moment.transformations))
        for name, value in (("training_loss", found.loss), ("training_accuracy", found.accuracy)):
            if not math.isnan(value):
                moment.record(name, value)


INFERENCE_TIME = "inference_time"
WARM_UP = 10  # calls that are not recorded
MOST_CALLS = 1_000_000  # one after the other, at every evaluation


@final
class MeasureInference(Event):
    """Times inferences on test samples at the end of each call of `train`: rows of `inference_time`.

    The time is from a batch in host memory to its scores there, on every agent, one call after the other;
    batches are the test split's samples in their order, repeated if necessary. `InferenceTime` and
    `InferenceLatency(0.99)` use the slowest agent of each call.

    batch_size: 1 gives the latency of a single sample. calls: the number of recorded calls; p99 with its
    interval needs 3,680.
    """

    records = (INFERENCE_TIME,)

    def __init__(self, batch_size: int = 1, calls: int = 1000) -> None:
        check_count("batch_size", batch_size)
        check_count("calls", calls, high=MOST_CALLS)
        self.batch_size = batch_size
        self.calls = calls

    def after_run(self, moment: Moment) -> None:
        test = moment.dataset.test
        if not moment.completed or not len(test):
            return
        batches = -(-len(test) // self.batch_size)
        kept: dict[int, Tree] = {}  # so that reading is not measured
        for call in range(-WARM_UP, self.calls):
            number = call % batches
            if number not in kept:
                kept[number] = self._batch(moment, number)
            begin = perf_counter_ns()
            moment.executor.inference(kept[number])
            seconds = (perf_counter_ns() - begin) * 1e-9
            if call >= 0:
                moment.record(INFERENCE_TIME, seconds, "s", phase="test", step=call)

    def _batch(self, moment: Moment, number: int) -> Tree:
        """Samples (batch, ...) as the network gets them; the last batch may be smaller."""
        first = number * self.batch_size
        indices = np.arange(first, min(first + self.batch_size, len(moment.dataset.test)), dtype=np.int64)
        inputs, _ = next(pieces_to_test(Subset(moment.dataset.test, indices), moment.transformations))
        return mapped(np.ascontiguousarray, inputs)


Array = np.ndarray[Any, Any]
Pieces = Iterator[tuple[Array, Array]]  # outputs (n, ...) of the network, and the targets (n, ...)
PIECE = 256  # samples


class Quality(Event, ABC):
    """Subclass it, name what it measures in `records`, and write `measure`; it is one of the `events`.

    Every evaluation ends with an additional pass over its samples. For a criterion on a value use a
    `LastEvaluation` of its name.
    """

    @abstractmethod
    def measure(self, pieces: Pieces) -> Mapping[str, float | None]:
        """A value for every name in `records`, from the network's outputs and the targets, piece by piece.

        None is an unknown value. Outputs are those of `Executor.inference`.
        """

    def check(self, experiment: Any) -> None:
        check_evaluates(self, experiment)

    @final
    def after_test(self, moment: Moment) -> None:
        tested = pieces_to_test(moment.evaluated, moment.transformations, PIECE)
        found = self.measure((moment.executor.inference(inputs), targets) for inputs, targets in tested)
        for name in self.records:
            moment.record(name, found[name], phase=moment.split, step=moment.step - 1)


NAME = "wrong_samples.parquet"
COLUMNS = {
    "index": pa.int64(), "position": pa.list_(pa.int64()), "label": pa.int64(), "predicted": pa.int64(),
    "score": pa.float64(), "label_score": pa.float64(),
}  # fmt: skip
AT_A_TIME = 1024  # labels, so that a large test split fits the memory


@final
class SaveWrongSamples(Event):
    """Writes `wrong_samples.parquet` into the run's folder: the most confident mistakes first.

    Columns: index (in the test split), position (of the label in a sequence; otherwise empty), label,
    predicted, score (of the predicted class) and label_score, as the network gives them, and the sample
    itself, as in the data set, as `input` with its `shape`; of a sample of several parts each has its own,
    such as `input['ids']` and `shape['ids']`. The first agent writes it, at the end of each call of `train`,
    with the evaluated parameters.

    most: the maximal number of mistakes to store.
    """

    def __init__(self, most: int = 1000) -> None:
        check_count("most", most)
        self.most = most

    def check(self, experiment: Any) -> None:
        check_classifies(self, experiment)

    def after_run(self, moment: Moment) -> None:
        test = moment.dataset.test
        if moment.rank or not moment.completed or not len(test):
            return
        kept: list[dict[str, Any]] = []
        count, samples = 0, max(1, AT_A_TIME * len(test) // test.labels.size)
        begin = 0
        for inputs, labels in pieces_to_test(test, moment.transformations, samples):
            scores = moment.executor.inference(inputs)  # (batch, ..., classes)
            predicted = scores.argmax(axis=-1)
            wrong = np.argwhere((predicted != labels) & (labels != IGNORED))
            for at in map(tuple, wrong.tolist()):
                best, true = int(predicted[at]), int(labels[at])
                row = {"index": begin + at[0], "position": at[1:], "label": true, "predicted": best}
                row |= {"score": float(scores[(*at, best)]), "label_score": float(scores[(*at, true)])}
                kept.append(row)
            count += len(wrong)
            kept.sort(key=lambda row: row["label_score"] - row["score"])
            del kept[self.most :]
            begin += len(labels)
        stored, _ = test.take(np.array([row["index"] for row in kept], dtype=np.int64))
        columns = dict(COLUMNS)
        for place, part in leaves(stored):
            columns |= {f"input{place}": pa.list_(pa.float32()), f"shape{place}": pa.list_(pa.int64())}
            for row, sample in zip(kept, part, strict=True):
                row |= {f"input{place}": sample.ravel().astype(np.float32), f"shape{place}": sample.shape}
        table = pa.Table.from_pylist(kept, schema=pa.schema(columns))
        moment.keep(NAME, _parquet(table))
        moment.note("wrong_samples", count=count, kept=len(kept), file=NAME)


def _parquet(table: pa.Table) -> bytes:
    import pyarrow.parquet as pq  # noqa: PLC0415 - only those who write one need it

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data
