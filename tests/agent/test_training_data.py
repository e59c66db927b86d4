"""Claims about what agents train on: the same batches from any step, and all kinds of data"""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import d5ray as d5
from d5ray.agent.training_agent import TrainingAgent
from d5ray.experiment import Experiment
from tests.agents import Rows, agents_in_threads
from tests.together import together

PIPELINE = (
    d5.transformations.Crop(8, padding=1),
    d5.transformations.RandomFlip(),
    d5.transformations.Normalize(0.3, 0.4),
)


@pytest.fixture(autouse=True)
def leaves_no_loader() -> Iterator[None]:
    yield
    for thread in threading.enumerate():
        if thread.name.startswith("loader"):
            thread.join(20)
            assert not thread.is_alive()


def experiment(**values: Any) -> Experiment:
    given: dict[str, Any] = {
        "model": "lenet", "dataset": d5.datasets.load_dataset("digits"),
        "optimizer": d5.optimizers.Momentum(0.05, 0.9),
        "agents": 2, "batch_size": 16, "seed": 3, "transformations": PIPELINE, "timeout_seconds": 20.0,
    }  # fmt: skip
    return Experiment(**given | values)


def trained(wanted: Experiment, steps: int) -> tuple[np.ndarray[Any, Any], list[Rows]]:
    """The parameters after these steps on agents in threads, and what each recorded."""
    with agents_in_threads(wanted, wanted.load_dataset()) as (agents, rows):
        outcomes = together(lambda rank: agents[rank].train(steps), len(agents))
        assert all(outcome.completed for outcome in outcomes), outcomes
        return agents[0].flat_parameters(), rows


def test_prefetching_changes_no_bit_of_a_training() -> None:
    """46 steps, over the end of an epoch: the same parameters and losses with 0, 1 and 4 batches ahead."""
    expected, rows = trained(experiment(prefetch=0), 46)
    for ahead in (1, 4):
        found, others = trained(experiment(prefetch=ahead, cpus_per_agent=2.0), 46)
        np.testing.assert_array_equal(found, expected)
        assert others[1].of("loss") == rows[1].of("loss")


@pytest.mark.parametrize("step", [7, 45, 60])
def test_going_on_at_a_step_gives_the_batches_that_would_have_come(step: int) -> None:
    """An agent that begins at step 7, at the second epoch, or in it: the same batches, transformed alike."""
    wanted = experiment(agents=1, batch_size=32)
    data = wanted.load_dataset()
    first, second = (TrainingAgent(0, wanted, "run", "node", Rows()) for _ in range(2))
    for agent in (first, second):
        agent.build(data)
    for before in range(step):
        first.data.draw(before)
    second.data.begin_at(step, 1, 0)
    for now in range(step, step + 5):
        expected, found = first.data.draw(now), second.data.draw(now)
        np.testing.assert_array_equal(found.inputs, expected.inputs)
        assert (found.epoch, found.step, found.ends_epoch) == (expected.epoch, now, expected.ends_epoch)
    first.leave()
    second.leave()


def test_the_model_gets_the_shape_that_the_transformations_give() -> None:
    """Digits of 8 × 8 enlarged to 16 × 16 and cut to 12 × 12, in training and in the evaluation."""
    wanted = experiment(
        agents=1, transformations=(d5.transformations.Resize(16), d5.transformations.Crop(12)), model="mlp"
    )
    with agents_in_threads(wanted, wanted.load_dataset()) as (agents, rows):
        assert agents[0].parameters()["1.weight"].shape == (64, 144)
        assert agents[0].train(3).completed
        test = wanted.load_dataset().test
        centres = d5.transformations.Resize(16).apply(
            d5.transformations.Sampled(test.inputs, test.labels, np.zeros(len(test), np.uint64))
        )
        expected = agents[0].executor.evaluate(
            np.ascontiguousarray(centres.inputs[:, :, 2:14, 2:14]), test.labels
        )
        assert rows[0].of("test_accuracy") == [pytest.approx(expected.accuracy)]
        assert rows[0].of("test_loss") == [pytest.approx(expected.loss, rel=1e-5)]


def test_an_evaluation_in_pieces_is_that_of_the_whole() -> None:
    """1,500 made-up test samples, read in two pieces: the loss to 1e-6 and the accuracy of all at once."""
    data = d5.datasets.load_dataset("synthetic", shape=(1, 8, 8), samples=200, test_samples=1500)
    wanted = experiment(dataset=data, agents=1, transformations=())
    with agents_in_threads(wanted, data) as (agents, rows):
        assert agents[0].train(5).completed
        expected = agents[0].executor.evaluate(data.test.inputs, data.test.labels)
        assert rows[0].of("test_accuracy") == [pytest.approx(expected.accuracy, rel=1e-12)]
        assert rows[0].of("test_loss") == [pytest.approx(expected.loss, rel=1e-6)]


def test_wrong_samples_are_found_among_samples_that_are_not_in_memory() -> None:
    """Of 1,100 enlarged test samples, each that is kept is predicted wrongly, and lies there as stored."""
    data = d5.datasets.load_dataset("synthetic", shape=(1, 6, 6), samples=100, test_samples=1100, noise=3.0)
    pipeline = (d5.transformations.Resize(8), d5.transformations.Normalize(0.1, 2.0))
    wanted = experiment(
        dataset=data, agents=1, transformations=pipeline, events=d5.events.SaveWrongSamples(most=40)
    )
    with agents_in_threads(wanted, data) as (agents, rows):
        assert agents[0].train(5).completed
        ((_, content),) = rows[0].files.items()
        kept = pq.read_table(pa.BufferReader(content)).to_pylist()
        indices = np.array([row["index"] for row in kept])
        inputs, labels = data.test.take(indices)
        stored = np.array([row["input"] for row in kept], np.float32).reshape(-1, 1, 6, 6)
        np.testing.assert_array_equal(stored, inputs)
        done = d5.transformations.Sampled(inputs, labels, indices.astype(np.uint64))
        for transformation in pipeline:
            done = transformation.apply(done)
        predicted = agents[0].executor.inference(np.ascontiguousarray(done.inputs)).argmax(axis=1)
    assert len(kept) == 40 and max(indices) > 1024
    assert predicted.tolist() == [row["predicted"] for row in kept]
    assert (predicted != labels).all() and labels.tolist() == [row["label"] for row in kept]


def test_parquet_and_folders_train_as_memory_does(tmp_path: Path) -> None:
    """The same 60 images in memory, in Parquet and as PNG files: the same parameters after ten steps."""
    pixels = np.random.default_rng(0).integers(0, 256, (60, 8, 8), dtype=np.uint8)
    labels = np.repeat(np.arange(3), 20)
    for number, (image, label) in enumerate(zip(pixels, labels, strict=True)):
        (tmp_path / "f" / f"c{label}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(tmp_path / "f" / f"c{label}" / f"{number:02}.png")
    column = [image.tobytes() for image in pixels]
    pq.write_table(pa.table({"pixels": column, "label": labels}), tmp_path / "p.parquet", row_group_size=7)
    train = d5.datasets.Split((pixels[:, None] / 255).astype(np.float32), labels)
    kinds: list[d5.datasets.Samples] = [
        train,
        d5.datasets.Parquet(tmp_path / "p.parquet", "pixels", shape=(1, 8, 8), cache_bytes=1000),
        d5.datasets.ImageFolder(tmp_path / "f", size=8, channels=1),
    ]
    found = [
        trained(experiment(dataset=d5.Dataset("d", kind, kind, tuple("abc")), transformations=()), 10)[0]
        for kind in kinds
    ]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_file_that_cannot_be_read_fails_the_step_that_needs_it(tmp_path: Path, prefetch: int) -> None:
    """The agent's outcome is 'failed' at that step, with the file; what was recorded before is there."""
    (tmp_path / "c").mkdir()
    for number in range(20):
        Image.new("L", (8, 8), number).save(tmp_path / "c" / f"{number:02}.png")
    (tmp_path / "c" / "13.png").write_bytes(b"none")
    folder = d5.datasets.ImageFolder(tmp_path, size=8, channels=1)
    data = d5.Dataset("d", folder, d5.datasets.Subset(folder, np.arange(0)), ("c",))
    wanted = experiment(
        dataset=data, agents=1, batch_size=5, transformations=(), prefetch=prefetch,
        train_sampler=d5.samplers.OrderedSampler(),
    )  # fmt: skip
    with agents_in_threads(wanted, data) as (agents, rows):
        outcome = agents[0].train(4)
    assert (outcome.status, outcome.step) == ("failed", 2)
    assert f"{tmp_path / 'c' / '13.png'}: found an unreadable image" in outcome.reason
    assert len(rows[0].of("loss")) == 2
