"""Claims about Ray Data: every row once an epoch on real agents, as of arrays; wrong rows by number"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import ray
from ray.data import DataContext

import d5ray as d5
from d5ray.errors import DataError
from d5ray.networks.executors.trees import leaves
from d5ray.training.batches.loader import Loader
from d5ray.training.samplers.sampler import OrderedSampler
from d5ray.training.samplers.shards import Shards

# Ray Data warns of its own settings.
pytestmark = [
    pytest.mark.full,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]

RNG = np.random.default_rng(25)
X = RNG.random((103, 6), np.float32)
Y = RNG.integers(0, 3, 103)
ROWS = [{"x": x, "label": int(y)} for x, y in zip(X, Y, strict=True)]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """A Ray of the user's own, with CPUs beside those of the agents."""
    d5.shutdown()  # that of tests before
    with tempfile.TemporaryDirectory(prefix="d5t-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        ray.init("local", num_cpus=5, include_dashboard=False, log_to_driver=False, _temp_dir=folder)
        DataContext.get_current().enable_progress_bars = False
        yield
        d5.shutdown()


def rows(blocks: int = 7) -> Any:
    return ray.data.from_items(ROWS, override_num_blocks=blocks)


def rows_of(*given: dict[str, Any]) -> Any:
    return ray.data.from_items(list(given))


def trained(dataset: d5.Dataset, agents: int, epochs: int) -> dict[str, Any]:
    experiment = d5.Experiment(
        "mlp", dataset, d5.optimizers.Momentum(0.1, 0.9), agents=agents, batch_size=8, epochs=epochs,
        train_sampler=d5.samplers.OrderedSampler(), recording=d5.metrics.Recording(monitor_seconds=0),
    )  # fmt: skip
    with d5.launch(experiment, quiet=True) as group:
        group.train()
        return group.parameters()


def test_agents_train_on_streamed_rows_as_on_arrays_to_the_last_bit() -> None:
    """Three agents, three epochs whose last step is shared unevenly: the same samples, in order."""
    streamed = trained(d5.from_ray(rows(), classes=3), 3, 3)
    arrays = trained(d5.from_arrays(X, Y, classes=3), 3, 3)
    assert all(np.array_equal(streamed[name], arrays[name]) for name in arrays)


def test_every_row_comes_once_an_epoch_in_a_new_order() -> None:
    """Of rows that Ray Data shuffles anew in every epoch: the multiset is that of the arrays."""
    made = d5.from_ray(rows().random_shuffle(), classes=3)
    shards = Shards(len(made.train), 4, 8, OrderedSampler(), seed=1)
    loaders = [Loader(made.train, ahead=agent) for agent in range(4)]
    for agent, loader in enumerate(loaders):
        loader.start(shards.draws(agent))
    orders = []
    for _ in range(2):
        steps = [loader.next(step) for step in range(shards.steps_per_epoch) for loader in loaders]
        orders.append([tuple(row) for batch in steps for row in batch.inputs.tolist()])
    for loader in loaders:
        loader.close()
    assert Counter(orders[0]) == Counter(orders[1]) == Counter(tuple(row) for row in X.tolist())
    assert orders[0] != orders[1]


def test_a_reader_goes_on_in_the_middle() -> None:
    """From step 9 of two epochs on, with the batches that would have come."""
    made = d5.from_ray(rows(), classes=3)
    shards = Shards(len(made.train), 2, 8, OrderedSampler(), seed=1)
    whole, rest = Loader(made.train), Loader(made.train)
    whole.start(shards.draws(1))
    batches = [whole.next(step) for step in range(14)]
    rest.start(shards.draws(1, first_step=9))
    for batch in batches[9:]:
        assert np.array_equal(rest.next(0).inputs, batch.inputs)


TOKENS = RNG.integers(0, 9, (9, 4))
COLUMNS: dict[str, Any] = {  # what a row has beside its label
    "lists": [{"x": [float(at), 1.0]} for at in range(9)],
    "numbers": [{"x": at} for at in range(9)],
    "pixels": [{"x": np.full((2, 3), at, np.uint8)} for at in range(9)],
    "several lists": [{"ids": ids.tolist(), "mask": [1] * 4} for ids in TOKENS],
    "lists and numbers": [{"ids": ids.tolist(), "at": at / 2} for at, ids in enumerate(TOKENS)],
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_rows_of_any_columns_are_those_of_arrays(kind: str) -> None:
    """Streamed and in memory: types, shapes and values, and several columns as a dictionary."""
    given = COLUMNS[kind]
    columns = {name: np.array([row[name] for row in given]) for name in given[0]}
    inputs = columns if len(columns) > 1 else columns["x"]
    expected = d5.from_arrays(inputs, np.arange(9) % 3).train
    table = ray.data.from_items([row | {"label": at % 3} for at, row in enumerate(given)])
    made = d5.from_ray(table, inputs=tuple(columns) if len(columns) > 1 else "x", test=table, classes=3)
    for split in (made.train, made.test):
        found = leaves(split.take(np.arange(9)))
        for (place, one), (other, array) in zip(
            found, leaves((expected.inputs, expected.labels)), strict=True
        ):
            assert place == other and one.dtype == array.dtype and np.array_equal(one, array)


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "no rows": (lambda: rows().filter(lambda _: False), "found no rows, expected at least one"),
    "a function that raises": (lambda: rows().map(lambda _: {"x": 1 // 0, "label": 0}), "ZeroDivisionError"),
    "shapes": (lambda: rows_of({"x": [1, 2], "label": 0}, {"x": [1], "label": 0}), "sample 1: found the"),
    "text": (lambda: rows_of({"x": "a", "label": 0}), "inputs of sample 0: found <U1"),
    "a label": (lambda: rows_of({"x": 1.0, "label": 7}), "sample 0 has the label 7"),
    "NaN": (lambda: rows_of({"x": float("nan"), "label": 0}), "inputs of sample 0 is nan"),
    "a column": (lambda: rows_of({"x": 1.0, "labels": 0}), "no column 'label': did you mean 'labels'"),
    "columns": (lambda: rows_of({"x": 1, "y": 2, "label": 0}), "x, y beside 'label'.*inputs='x'"),
}  # fmt: skip


@pytest.mark.parametrize(("given", "message"), WRONG.values(), ids=WRONG)
def test_wrong_rows_are_one_error(given: Callable[[], Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        made = d5.from_ray(given(), classes=3)
        made.train.take(np.arange(len(made.train)))
