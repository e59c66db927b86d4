"""Catalogue of data sets by name, and how one is loaded."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from d5ray.checks import check_kind
from d5ray.errors import ConfigurationError, nearest
from d5ray.training.datasets.cifar import load_cifar10, load_cifar100
from d5ray.training.datasets.clicks import load_clicks
from d5ray.training.datasets.coco import load_coco
from d5ray.training.datasets.criteo import load_criteo
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.datasets.digits import DIGITS, load_digits
from d5ray.training.datasets.drawn_shapes import load_shapes
from d5ray.training.datasets.environment import load_environment
from d5ray.training.datasets.image_folder import load_image_folder, load_imagenet
from d5ray.training.datasets.keywords import load_keywords
from d5ray.training.datasets.mnist import load_fashion_mnist, load_mnist
from d5ray.training.datasets.parquet import load_parquet
from d5ray.training.datasets.published_files import default_root
from d5ray.training.datasets.speech_commands import load_speech_commands
from d5ray.training.datasets.synthetic import load_synthetic
from d5ray.training.datasets.text import load_stdlib, load_text, load_wikitext

# Loaders of data that an installed package carries, that is made, or that is the user's own: called with the
# options alone.
SHIPPED: dict[str, Callable[..., Dataset]] = {
    "digits": load_digits,
    "text": load_text,
    "stdlib": load_stdlib,
    "keywords": load_keywords,
    "shapes": load_shapes,
    "clicks": load_clicks,
    "environment": load_environment,
    "synthetic": load_synthetic,
    "image_folder": load_image_folder,
    "parquet": load_parquet,
}

# Loaders of data that lies in files: called with the root folder, whether to download, and the options.
PUBLISHED: dict[str, Callable[..., Dataset]] = {
    "mnist": load_mnist,
    "fashion_mnist": load_fashion_mnist,
    "cifar10": load_cifar10,
    "cifar100": load_cifar100,
    "imagenet": load_imagenet,
    "wikitext": load_wikitext,
    "speech_commands": load_speech_commands,
    "coco": load_coco,
    "criteo": load_criteo,
}


def dataset_names() -> tuple[str, ...]:
    """The names that `load_dataset` knows.

    >>> dataset_names()[:4]
    ('digits', 'text', 'stdlib', 'keywords')
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
    parameters = inspect.signature({**SHIPPED, **PUBLISHED}[name]).parameters.values()
    known = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    for option in options:
        if option not in known:
            raise ConfigurationError(f"data set {name!r} has no option {option!r}: {nearest(option, known)}")


def training_samples(name: str, options: Mapping[str, object]) -> int | None:
    """The number of samples to train on, if the data set's options tell; None if only loading it does.

    >>> training_samples("digits", {}), training_samples("shapes", {"samples": 64})
    (1438, 64)
    """
    parameters = inspect.signature({**SHIPPED, **PUBLISHED}[name]).parameters
    known = {key: options.get(key, parameter.default) for key, parameter in parameters.items()}
    samples, share = known.get("samples"), known.get("test_fraction")
    if name == "digits" and isinstance(share, float) and 0 < share < 1:
        return DIGITS - round(share * DIGITS)
    return samples if isinstance(samples, int) and samples > 0 else None


def load_dataset(
    name: str, *, root: str | Path | None = None, download: bool = False, **options: object
) -> Dataset:
    """Load a data set: inputs (N, C, H, W) float32 in 0..1, labels (N,) int64, or text and others.

    Those of images in folders, of Parquet files and of made-up samples stay where they are until taken.

    Args:
        name: one of `dataset_names()`.
        root: the folder of all data sets; files of `mnist` lie in `root/mnist` or in `root` itself.
            None: $D5RAY_DATA, else $D5RAY_HOME/data, else ~/d5ray/data. Digits and text need none.
        download: fetch what is missing from the published address. Without it the network is not touched.
        options: digits: `split_seed`, `test_fraction`; mnist and the like: `checksum` (False skips the
            comparison with the published MD5); cifar100: `labels` ("fine" or "coarse"); the others as their
            loaders have them: `load_text`, `load_synthetic`, `load_image_folder`, `load_parquet` and
            `load_imagenet`.

    Raises:
        ConfigurationError: unknown name or option, or an option's value makes no sense.
        DataError: a file is missing, is not the published one, or cannot be read.
    """
    check_dataset_options(name, options)
    if name in SHIPPED:
        return _loaded(name, SHIPPED[name], options)
    folder = default_root() if root is None else Path(root).expanduser()
    return _loaded(name, PUBLISHED[name], options, folder, download)


def _loaded(
    name: str, load: Callable[..., Dataset], options: Mapping[str, object], *given: object
) -> Dataset:
    lacking = [
        parameter.name
        for parameter in inspect.signature(load).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
        and parameter.default is parameter.empty
        and parameter.name not in options
    ]
    if lacking:
        raise ConfigurationError(
            f"data set {name!r} lacks {', '.join(lacking)}: say where it is, such as "
            f"dataset_kwargs={{{lacking[0]!r}: '/data/mine'}}"
        )
    return load(*given, **options)
