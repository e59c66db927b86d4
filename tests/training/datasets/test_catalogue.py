"""Claims about load_dataset: names, options, and the folders that it looks in."""

import re
from pathlib import Path

import pytest

from d5ray.errors import ConfigurationError, DataError
from d5ray.training.datasets.catalogue import (
    check_dataset_name,
    check_dataset_options,
    dataset_names,
    load_dataset,
)
from tests.beside_kits import cases_of


def test_every_published_name_is_known() -> None:
    """The data sets are known by these names, and none is refused."""
    published = {"digits", "mnist", "fashion_mnist", "cifar10", "cifar100", "imagenet"}
    own = {"synthetic", "image_folder", "parquet", *cases_of("workloads", lambda: ["text"])}
    assert published | own <= set(dataset_names())
    for name in dataset_names():
        check_dataset_name(name)


@pytest.mark.parametrize(
    ("wrong", "right"), [("MNIST", "mnist"), ("cifar-10", "cifar10"), ("digit", "digits")]
)
def test_an_unknown_name_gets_the_nearest(wrong: str, right: str) -> None:
    """The check without loading and the loading itself raise the same error, with the nearest name."""
    with pytest.raises(ConfigurationError) as checked:
        check_dataset_name(wrong)
    with pytest.raises(ConfigurationError) as loaded:
        load_dataset(wrong)
    assert str(checked.value) == str(loaded.value) == f"unknown data set {wrong!r}: did you mean {right!r}?"


@pytest.mark.parametrize(
    ("name", "option", "right"),
    [
        ("digits", "splitseed", "split_seed"),
        ("mnist", "checksums", "checksum"),
        ("cifar100", "label", "labels"),
    ],
)
def test_an_unknown_option_gets_the_nearest(name: str, option: str, right: str) -> None:
    """An option that the data set does not have is refused before anything is read."""
    expected = f"data set {name!r} has no option {option!r}: did you mean {right!r}?"
    with pytest.raises(ConfigurationError) as checked:
        check_dataset_options(name, [option])
    with pytest.raises(ConfigurationError) as loaded:
        load_dataset(name, **{option: 1})  # type: ignore[arg-type]
    assert str(checked.value) == str(loaded.value) == expected


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("digits", {"split_seed": -1}, "split_seed is -1: it must be an integer"),
        ("digits", {"split_seed": True}, "split_seed is True"),
        (
            "digits",
            {"test_fraction": 1.0},
            "test_fraction is 1.0: it must be a number greater",
        ),
        ("digits", {"test_fraction": "0.2"}, "test_fraction is '0.2'"),
        ("digits", {"test_fraction": 1e-9}, "1797 samples to train and 0 to test"),
        ("mnist", {"checksum": "false"}, "checksum is 'false' .*: it must be True or False"),
        ("cifar10", {"checksum": 0}, "checksum is 0 .*: it must be True or False"),
        ("cifar100", {"labels": "corse"}, "labels='corse': did you mean 'coarse'"),
    ],
)
def test_an_option_without_sense_is_refused(name: str, options: dict[str, object], message: str) -> None:
    """A value outside an option's range is a ConfigurationError that names option and value."""
    with pytest.raises(ConfigurationError, match=message):
        load_dataset(name, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("image_folder", "path"),
        ("parquet", "train"),
        *cases_of("workloads", lambda: [("webdataset", "train, classes"), ("tfrecord", "train, classes")]),
    ],
)
def test_where_the_data_lies_must_be_said(name: str, option: str) -> None:
    """Without the option that says it, the error names the option, with a value of its kind; so of others."""
    example = re.escape(str({key: 10 if key == "classes" else "/data/mine" for key in option.split(", ")}))
    with pytest.raises(ConfigurationError, match=f"{name!r} lacks {option}: say it, .*={example}$"):
        load_dataset(name)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10", "cifar100", "imagenet"])
def test_the_root_comes_from_the_environment(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D5RAY_DATA comes before D5RAY_HOME/data before ~/d5ray/data; an argument before all of them."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("D5RAY_HOME", raising=False)
    monkeypatch.delenv("D5RAY_DATA", raising=False)

    def folder_in_error(root: Path | None = None) -> str:
        with pytest.raises(DataError) as error:
            load_dataset(name, root=root)
        return str(error.value).rpartition("place it in ")[2]

    assert folder_in_error() == str(tmp_path / "home" / "d5ray" / "data" / name)
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path / "house"))
    assert folder_in_error() == str(tmp_path / "house" / "data" / name)
    monkeypatch.setenv("D5RAY_DATA", str(tmp_path / "store"))
    assert folder_in_error() == str(tmp_path / "store" / name)
    assert folder_in_error(tmp_path / "here") == str(tmp_path / "here" / name)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10", "cifar100"])
def test_without_download_the_network_is_not_touched(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing file is an error that names every folder and the remedy; no connection is tried."""

    def no_network(*_args: object, **_options: object) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr("urllib.request.urlopen", no_network)
    with pytest.raises(DataError) as error:
        load_dataset(name, root=tmp_path)
    lines = str(error.value).splitlines()
    assert lines[1:3] == [f"  {tmp_path / name}", f"  {tmp_path}"]
    assert "pass download=True, or fetch it from http" in lines[3]
    assert not list(tmp_path.iterdir())
