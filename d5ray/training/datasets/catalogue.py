"""Catalogue of data sets by name, and how one is loaded."""

import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from d5ray.checks import check_kind, check_path, check_share, is_number
from d5ray.errors import ConfigurationError, nearest
from d5ray.names.kits import brought
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.datasets.digits import DIGITS
from d5ray.training.datasets.published_files import default_root
from d5ray.training.datasets.samples import Samples
from d5ray.training.datasets.splitting import validating, with_test

_HERE: Final = "d5ray.training.datasets"

# Where loaders are, as `module:attribute`: of data that follow from their options alone, everywhere, unless
# these name files; of data that an installed package carries or that are the user's own, where a kind of
# files stands for its loader; and of published files, called with the root folder, whether to download, and
# the options.
MADE: Final = {
    "digits": f"{_HERE}.digits:load_digits",
    "synthetic": f"{_HERE}.synthetic:load_synthetic",
} | brought("datasets that are made")
SHIPPED: Final = (
    MADE
    | {
        "image_folder": f"{_HERE}.image_folder:load_image_folder",
        "parquet": f"{_HERE}.parquet:Parquet",
    }
    | brought("datasets of one's own files")
)
PUBLISHED: Final = {
    "mnist": f"{_HERE}.mnist:load_mnist",
    "fashion_mnist": f"{_HERE}.mnist:load_fashion_mnist",
    "cifar10": f"{_HERE}.cifar:load_cifar10",
    "cifar100": f"{_HERE}.cifar:load_cifar100",
    "imagenet": f"{_HERE}.image_folder:load_imagenet",
} | brought("published datasets")
FILES = ("source", "target", "test_source", "test_target")  # options that name some


def dataset_names() -> tuple[str, ...]:
    """The names that `load_dataset` knows.

    >>> dataset_names()[:2]
    ('digits', 'synthetic')
    """
    return (*SHIPPED, *PUBLISHED)


def check_dataset_name(name: str) -> None:
    """Raise the ConfigurationError that `load_dataset` would, without loading anything."""
    check_kind("the name of a data set", name, str, "a text")
    if name not in dataset_names():
        raise ConfigurationError(f"unknown data set {name!r}: {nearest(name, dataset_names())}")


def check_dataset_options(name: str, options: Iterable[str]) -> None:
    """Raise ConfigurationError if the data set does not exist or has no such option; loads nothing."""
    check_dataset_name(name)
    known = (*_parameters(name), "validation")
    for option in options:
        if option not in known:
            raise ConfigurationError(f"data set {name!r} has no option {option!r}: {nearest(option, known)}")


def is_made(name: str, options: Mapping[str, object]) -> bool:
    """True if name and options tell every sample, on every machine; else files say what the data are.

    >>> is_made("digits", {}), is_made("text", {}), is_made("translation", {"source": "a", "target": "b"})
    (True, False, False)
    """
    return name in MADE and all(options.get(option) is None for option in FILES)


def training_samples(name: str, options: Mapping[str, object]) -> int | None:
    """The number of samples to train on, if the data set's options tell; None if only loading it does.

    >>> training_samples("digits", {}), training_samples("shapes", {"samples": 64})
    (1438, 64)
    """
    known = {key: options.get(key, parameter.default) for key, parameter in _parameters(name).items()}
    samples, share, kept = known.get("samples"), known.get("test_fraction"), options.get("validation", 0.0)
    if name == "digits" and isinstance(share, float) and 0 < share < 1:
        samples = DIGITS - round(share * DIGITS)
    if not isinstance(samples, int) or samples <= 0 or not is_number(kept):
        return None
    return samples - round(float(kept) * samples)  # type: ignore[arg-type]


def load_dataset(
    name: str,
    *,
    root: str | Path | None = None,
    download: bool = False,
    validation: float = 0.0,
    **options: object,
) -> Dataset:
    """Load a data set: inputs (N, C, H, W) float32 in 0..1, labels (N,) int64, or text and others.

    Those of images in folders, of Parquet files and of made-up samples stay where they are until taken.

    Args:
        name: one of `dataset_names()`.
        root: the folder of all data sets; files of `mnist` lie in `root/mnist` or in `root` itself.
            None: $D5RAY_DATA, else $D5RAY_HOME/data, else ~/d5ray/data. Digits and text need none.
        download: fetch what is missing from the published address. Without it the network is not touched.
        validation: the share of the training samples to validate on instead, always the same ones; 0: none.
        options: digits: `split_seed`, `test_fraction`; mnist and the like: `checksum` (False skips the
            comparison with the published MD5); cifar100: `labels` ("fine" or "coarse"); the others as their
            loaders have them: `load_text`, `load_synthetic`, `load_image_folder`, `load_imagenet`, and those
            of files as `Parquet`, `TFRecord` and `WebDataset`, see `load_files`.

    Raises:
        ConfigurationError: unknown name or option, or an option's value makes no sense.
        DataError: a file is missing, is not the published one, or cannot be read.
    """
    check_dataset_options(name, options)
    check_share("validation", validation)
    if name in SHIPPED:
        made = _loaded(name, options)
    else:
        folder = default_root() if root is None else check_path("root", root)
        made = _loaded(name, options, folder, download)
    return validating(made, validation) if validation else made


def load_files(
    kind: type[Samples],
    name: str,
    *,
    train: str | Path,
    test: str | Path | None = None,
    test_fraction: float = 0.2,
    split_seed: int = 500,
    **options: object,
) -> Dataset:
    """Files of a kind to train on and to test on, such as `Parquet`, with its options.

    Without files to test on, a share of the samples does, chosen by `split_seed`.
    """
    make: Callable[..., Any] = kind
    found = make(train, **options)
    tests = None if test is None else make(test, **options | {"classes": found.classes})
    return with_test(name, found, tests, found.classes, test_fraction, split_seed)


def _loader(name: str) -> Callable[..., Dataset]:
    loader: Callable[..., Dataset] = pkgutil.resolve_name((SHIPPED | PUBLISHED)[name])
    return partial(load_files, loader, name) if isinstance(loader, type) else loader


def _parameters(name: str) -> dict[str, inspect.Parameter]:
    """The options of a data set; for a kind of files also those of its class, but for the path."""
    loader = _loader(name)
    found = [each for each in inspect.signature(loader).parameters.values() if each.kind is each.KEYWORD_ONLY]
    if isinstance(loader, partial):
        found += list(inspect.signature(loader.args[0]).parameters.values())[1:]
    return {each.name: each for each in found}


def _loaded(name: str, options: Mapping[str, object], *given: object) -> Dataset:
    lacking = {
        key: 10 if each.annotation is int else "/data/mine"
        for key, each in _parameters(name).items()
        if each.default is each.empty and key not in options
    }
    if lacking:
        raise ConfigurationError(
            f"data set {name!r} lacks {', '.join(lacking)}: say it, such as dataset_kwargs={lacking}"
        )
    return _loader(name)(*given, **options)
