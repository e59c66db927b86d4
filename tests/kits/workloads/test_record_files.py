"""Claims about TFRecord and WebDataset: any sample in any order, and damage by its place"""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError, D5Error, DataError
from d5ray.training.datasets.samples import Samples
from tests.kits.workloads.files import write_records, write_tar
from tests.training.datasets.test_arrays import equal, trained

RNG = np.random.default_rng(27)
X = RNG.random((30, 6), np.float32)
Y = RNG.integers(0, 3, 30)
PIXELS = RNG.integers(0, 256, (30, 4, 5, 3), dtype=np.uint8)
CHANNELS_FIRST = PIXELS.transpose(0, 3, 1, 2)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The samples in two files of each kind, in folders for each."""
    for name in ("records", "tars"):
        (tmp_path / name).mkdir()
    for number, part in enumerate((range(20), range(20, 30))):
        write_records(
            tmp_path / "records" / f"some.tfrecord-0000{number}-of-00002",
            [
                {"x": X[at].tolist(), "raw": [CHANNELS_FIRST[at].tobytes()], "label": [int(Y[at])]}
                for at in part
            ],
        )
        write_tar(
            tmp_path / "tars" / f"{number}.tar",
            {f"a/{at:04}": {"png": PIXELS[at], "npy": X[at], "cls": int(Y[at])} for at in part},
        )
    return tmp_path


def test_records_train_as_the_same_arrays_do(files: Path) -> None:
    """To the last bit, in whatever order samples are asked for, and after a pickle."""
    record, tar = d5.datasets.TFRecord, d5.datasets.WebDataset
    expected = trained(d5.from_arrays(X, Y, classes=3))
    for samples in (record(files / "records", 3, inputs="x"), tar(files / "tars", 3, inputs="npy")):
        empty = d5.datasets.Split(X[:0], Y[:0])
        assert equal(trained(d5.Dataset("d", samples, empty, 3)), expected)
        sent: Samples = pickle.loads(pickle.dumps(samples))
        found, labels = sent.take(np.array([29, 0, 7]))
        assert np.array_equal(found, X[[29, 0, 7]]) and np.array_equal(labels, Y[[29, 0, 7]])
        assert sent.fingerprint == samples.fingerprint


def test_pixels_are_those_that_were_written(files: Path) -> None:
    """Raw bytes of a shape, and images of one size, stay uint8 (C, H, W); scaled ones are float32."""
    raw = d5.datasets.TFRecord(files / "records", 3, inputs="raw", shape=(3, 4, 5))
    images = d5.datasets.WebDataset(files / "tars", 3)
    for samples in (raw, images):
        found, _ = samples.take(np.arange(30))
        assert found.dtype == np.uint8 and np.array_equal(found, CHANNELS_FIRST)
    scaled, _ = d5.datasets.WebDataset(files / "tars", 3, size=(4, 5)).take(np.arange(30))
    assert np.array_equal(scaled, CHANNELS_FIRST / np.float32(255))


def test_files_are_data_sets_by_name(files: Path) -> None:
    """With a share of their samples to test on, or other files."""
    made = d5.datasets.load_dataset("tfrecord", train=files / "records", classes=3, inputs="x")
    assert (len(made.train), len(made.test)) == (24, 6)
    tar = files / "tars"
    made = d5.datasets.load_dataset("webdataset", train=tar / "0.tar", test=tar / "1.tar", classes=3)
    assert (len(made.train), len(made.test)) == (20, 10)
    with pytest.raises(ConfigurationError, match="lacks train, classes"):
        d5.datasets.load_dataset("webdataset")


@pytest.mark.full
def test_records_of_tensorflow_are_read(tmp_path: Path) -> None:
    """What TensorFlow writes, it as the oracle of the format and its checksums."""
    tf = pytest.importorskip("tensorflow")
    with tf.io.TFRecordWriter(str(tmp_path / "tf.tfrecord")) as writer:
        for at in range(30):
            features = {
                "x": tf.train.Feature(float_list=tf.train.FloatList(value=X[at])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[Y[at]])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    found, labels = d5.datasets.TFRecord(tmp_path / "tf.tfrecord", 3, inputs="x").take(np.arange(30))
    assert np.array_equal(found, X) and np.array_equal(labels, Y)
    write_records(tmp_path / "own.tfrecord", [{"x": X[0].tolist(), "label": [1]}])
    (own,) = tf.data.TFRecordDataset(str(tmp_path / "own.tfrecord"))
    assert tf.train.Example.FromString(own.numpy()).features.feature["label"].int64_list.value[:] == [1]


def damaged(folder: Path) -> None:
    path = folder / "bad.tfrecord"
    write_records(path, [{"x": [1.0], "label": [0]}] * 3)
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


def cut_off(folder: Path) -> None:
    damaged(folder)
    write_records(folder / "bad.tfrecord", [{"x": [1.0], "label": [0]}])
    (folder / "bad.tfrecord").write_bytes((folder / "bad.tfrecord").read_bytes()[:-6])


def records(*samples: Any) -> Callable[[Path], None]:
    return lambda folder: write_records(folder / "bad.tfrecord", samples)


def tar(**members: Any) -> Callable[[Path], None]:
    whole = {"0": {"npy": X[0], "cls": 0}, "1": members}
    return lambda folder: write_tar(folder / "bad.tar", whole)


WRONG: dict[str, tuple[Callable[[Path], None], str]] = {
    "a wrong checksum": (damaged, "record 1: found a length whose checksum is wrong"),
    "cut off": (cut_off, "record 0: found the end of the file in it"),
    "no feature": (records({"y": [1.0], "label": [0]}), "sample 0 has no feature 'x'"),
    "lengths": (
        records({"x": [1.0], "label": [0]}, {"x": [1.0] * 2, "label": [0]}),
        "sample 1: found the shape",
    ),
    "no inputs": (tar(cls=0), "the sample '1' has no .npy"),
    "a label of text": (tar(npy=X[0], cls="cat"), "sample 1, '1', .cls: found b'cat', expected a number"),
    "NaN": (tar(npy=X[0] * np.nan, cls=0), r"inputs\[0\] of sample 1 is nan"),
}


@pytest.mark.parametrize(("write", "message"), WRONG.values(), ids=WRONG)
def test_a_damaged_file_is_one_error_with_the_sample(
    write: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    """When the files are looked through, or when the sample is read."""
    write(tmp_path)
    with pytest.raises(DataError, match=message):
        made: Samples
        if (tmp_path / "bad.tar").exists():
            made = d5.datasets.WebDataset(tmp_path / "bad.tar", 2, inputs="npy")
        else:
            made = d5.datasets.TFRecord(tmp_path / "bad.tfrecord", 2, inputs="x")
        made.take(np.arange(len(made)))


def test_files_that_are_not_there_are_missed(tmp_path: Path) -> None:
    for kind in (d5.datasets.TFRecord, d5.datasets.WebDataset):
        for path in (tmp_path, tmp_path / "nothing"):
            with pytest.raises(DataError, match=r"found no .* file"):
                kind(path, 2)
        with pytest.raises(D5Error, match="classes is 0"):
            kind(tmp_path, 0)
