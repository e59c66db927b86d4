"""What measuring costs: a recorded value, rows into the store, and a query over ten million of them.

    d5ray run benchmarks/recording_speed        or        python -m benchmarks.recording_speed.recipe

Values are recorded as an agent's loop does it, a frame of thirteen a step; a value's time contains its share
of the batch that is made of some thousand steps. The store takes such batches, makes rows of `samples` of
them, checks that none is missing and hands them to the file system. The query is on a finished run: from the
text to the table with a median for each metric, checked against NumPy's. The unit is a fresh process.
"""

from benchmarks.recording_speed.job import Query, Recordings, Storing, Values
from benchmarks.recording_speed.metrics import QueryTime, RecordingTime, RowsStored
from d5ray.recipes.engine.command import main

LISTED = ("benchmarks", "2 minutes")  # by `d5ray list`; on two cores

# Fixed components: whoever competes keeps them
FIXED = {
    "job": Recordings,
    "comparisons": ((Values(), Storing()), (Query(),)),
    "rows": 10_000_000,
}

# Mutable components: how much is measured
MUTABLE = {
    "steps": 20_000,  # of 13 values, for one repetition
    "seconds": 5.0,  # of every process, at most
    "pairs": 6,
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    RecordingTime("recorder[1]") <= 1e-6,
    RowsStored("store[1]") >= 1e6,
    QueryTime("sql[1]") <= 1.0,
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
