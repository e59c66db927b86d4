"""Catalogue of data sets by name, and how one is loaded."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from d5ray.checks import check_kind, check_path, check_share, is_number
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
from d5ray.training.datasets.keyword_sequences import load_keyword_sequences
from d5ray.training.datasets.keywords import load_keywords
from d5ray.training.datasets.mnist import load_fashion_mnist, load_mnist
from d5ray.training.datasets.parquet import load_parquet
from d5ray.training.datasets.published_files import default_root
from d5ray.training.datasets.speech_commands import load_speech_commands
from d5ray.training.datasets.splitting import validating
from d5ray.training.datasets.synthetic import load_synthetic
from d5ray.training.datasets.text import load_stdlib, load_text, load_wikitext
from d5ray.training.datasets.tfrecord import load_tfrecord
from d5ray.training.datasets.tokens import load_tokens
from d5ray.training.datasets.translation import load_translation
from d5ray.training.datasets.webdataset import load_webdataset

# Loaders of data that an installed package carries, that is made, or that is the user's own: called with the
# options alone.
SHIPPED: dict[str, Callable[..., Dataset]] = {
    "digits": load_digits,
    "text": load_text,
    "stdlib": load_stdlib,
    "tokens": load_tokens,
    "keywords": load_keywords,
    "keyword_sequences": load_keyword_sequences,
    "shapes": load_shapes,
    "clicks": load_clicks,
    "translation": load_translation,
    "environment": load_environment,
    "synthetic": load_synthetic,
    "image_folder": load_image_folder,
    "parquet": load_parquet,
    "tfrecord": load_tfrecord,
    "webdataset": load_webdataset,
}

# Those of `SHIPPED` that follow from their options alone, everywhere; files, where options name some, do not.
MADE: frozenset[str] = frozenset({
    "digits", "keywords", "keyword_sequences", "shapes", "clicks", "environment", "synthetic", "translation",
})  # fmt: skip
FILES = ("source", "target", "test_source", "test_target")  # options that name some

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
    ('digits', 'text', 'stdlib', 'tokens')
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
    known.append("validation")
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
    parameters = inspect.signature({**SHIPPED, **PUBLISHED}[name]).parameters
    known = {key: options.get(key, parameter.default) for key, parameter in parameters.items()}
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
            loaders have them: `load_text`, `load_synthetic`, `load_image_folder`, `load_parquet` and
            `load_imagenet`.

    Raises:
        ConfigurationError: unknown name or option, or an option's value makes no sense.
        DataError: a file is missing, is not the published one, or cannot be read.
    """
    check_dataset_options(name, options)
    check_share("validation", validation)
    if name in SHIPPED:
        made = _loaded(name, SHIPPED[name], options)
    else:
        folder = default_root() if root is None else check_path("root", root)
        made = _loaded(name, PUBLISHED[name], options, folder, download)
    return validating(made, validation) if validation else made


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
