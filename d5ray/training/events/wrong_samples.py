"""The event that keeps the test samples which the trained network takes for something else"""

from typing import final

import numpy as np
import pyarrow as pa

from d5ray.checks import check_count
from d5ray.training.events.event import Event
from d5ray.training.events.moment import Moment

NAME = "wrong_samples.parquet"
AT_A_TIME = 1024  # samples, so that a large test split fits the memory


@final
class SaveWrongSamples(Event):
    """Writes `wrong_samples.parquet` into the run's folder: the surest mistakes first.

    index (in the test split), label, predicted, score (of the predicted class) and label_score, as the
    network gives them, and the sample itself as `input` with its `shape`. The first agent does it, at the end
    of each call of `train`, with the parameters that were evaluated.

    most: samples that are kept.
    """

    def __init__(self, most: int = 1000) -> None:
        check_count("most", most)
        self.most = most

    def after_run(self, moment: Moment) -> None:
        test = moment.dataset.test
        if moment.rank or not moment.completed or not len(test):
            return
        found: list[tuple[float, int, int, int, float]] = []
        for begin in range(0, len(test), AT_A_TIME):
            labels = test.labels[begin : begin + AT_A_TIME]
            scores = moment.executor.inference(test.inputs[begin : begin + AT_A_TIME])
            predicted = scores.argmax(axis=1)
            for at in np.flatnonzero(predicted != labels):
                own = scores[at]
                best, true = int(predicted[at]), int(labels[at])
                found.append((float(own[best]), begin + int(at), true, best, float(own[true])))
        found.sort(key=lambda each: each[4] - each[0])
        kept = found[: self.most]
        table = pa.table(
            {
                "index": pa.array([each[1] for each in kept], pa.int64()),
                "label": pa.array([each[2] for each in kept], pa.int64()),
                "predicted": pa.array([each[3] for each in kept], pa.int64()),
                "score": pa.array([each[0] for each in kept], pa.float64()),
                "label_score": pa.array([each[4] for each in kept], pa.float64()),
                "input": pa.array([test.inputs[each[1]].ravel() for each in kept], pa.list_(pa.float32())),
                "shape": pa.array([list(test.inputs.shape[1:])] * len(kept), pa.list_(pa.int64())),
            }
        )
        moment.keep(NAME, _parquet(table))
        moment.note("wrong_samples", count=len(found), kept=len(kept), file=NAME)


def _parquet(table: pa.Table) -> bytes:
    import pyarrow.parquet as pq  # noqa: PLC0415 - only those who write one need it

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data
