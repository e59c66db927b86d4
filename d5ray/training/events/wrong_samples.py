"""The event that stores the test samples that the trained network misclassifies"""

from typing import Any, final

import numpy as np
import pyarrow as pa

from d5ray.checks import check_count
from d5ray.training.batches.loader import pieces_to_test
from d5ray.training.events.event import Event, check_classifies
from d5ray.training.events.moment import Moment

NAME = "wrong_samples.parquet"
Mistake = tuple[float, int, int, int, float, list[int]]
AT_A_TIME = 1024  # labels, so that a large test split fits the memory


@final
class SaveWrongSamples(Event):
    """Writes `wrong_samples.parquet` into the run's folder: the most confident mistakes first.

    Columns: index (in the test split), position (of the label in a sequence; otherwise empty), label,
    predicted, score (of the predicted class) and label_score, as the network gives them, and the sample
    itself, as in the data set, as `input` with its `shape`. The first agent writes it, at the end of each
    call of `train`, with the evaluated parameters.

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
        kept: list[Mistake] = []
        count, samples = 0, max(1, AT_A_TIME * len(test) // test.labels.size)
        begin = 0
        for inputs, labels in pieces_to_test(test, moment.transformations, samples):
            scores = moment.executor.inference(inputs)  # (batch, ..., classes)
            predicted = scores.argmax(axis=-1)
            for at in map(tuple, np.argwhere(predicted != labels).tolist()):
                best, true = int(predicted[at]), int(labels[at])
                own, score = float(scores[(*at, true)]), float(scores[(*at, best)])
                kept.append((score, begin + at[0], true, best, own, list(at[1:])))
                count += 1
            kept.sort(key=lambda each: each[4] - each[0])
            del kept[self.most :]
            begin += len(labels)
        stored, _ = test.take(np.array([each[1] for each in kept], dtype=np.int64))
        table = pa.table(
            {
                "index": pa.array([each[1] for each in kept], pa.int64()),
                "position": pa.array([each[5] for each in kept], pa.list_(pa.int64())),
                "label": pa.array([each[2] for each in kept], pa.int64()),
                "predicted": pa.array([each[3] for each in kept], pa.int64()),
                "score": pa.array([each[0] for each in kept], pa.float64()),
                "label_score": pa.array([each[4] for each in kept], pa.float64()),
                "input": pa.array(
                    [each.ravel().astype(np.float32) for each in stored], pa.list_(pa.float32())
                ),
                "shape": pa.array([list(test.sample_shape)] * len(kept), pa.list_(pa.int64())),
            }
        )
        moment.keep(NAME, _parquet(table))
        moment.note("wrong_samples", count=count, kept=len(kept), file=NAME)


def _parquet(table: pa.Table) -> bytes:
    import pyarrow.parquet as pq  # noqa: PLC0415 - only those who write one need it

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data
