"""A data set of arrays in memory: of NumPy, PyTorch, pandas or Arrow, of any type of numbers"""

from collections.abc import Iterable
from typing import Any

from d5ray.checks import check_count, check_kind, is_number, shown
from d5ray.errors import ConfigurationError, DataError
from d5ray.networks.executors.trees import form_of, leaves, mapped, packed
from d5ray.training.datasets.dataset import Dataset, Split
from d5ray.training.datasets.numbers import inputs_of, labels_of
from d5ray.training.datasets.samples import Array, Samples
from d5ray.training.datasets.splitting import SPLIT_SEED, dataset_of_splits

Pair = tuple[Any, Any]


def from_arrays(
    x: Any,
    y: Any,
    *,
    validation: Pair | float | None = None,
    test: Pair | float | None = None,
    classes: Iterable[str] | int | None = None,
    name: str = "arrays",
    split_seed: int = SPLIT_SEED,
) -> Dataset:
    """A data set of inputs x (N, ...) and labels y (N, ...), to be trained on.

    Arrays of NumPy, tensors of PyTorch, columns of pandas or Arrow, or lists. Floating numbers of any type
    become float32, integers int64. Inputs of uint8 are pixels: they stay uint8 in memory, and become float32
    when they are drawn, see `ScalePixels`. Arrays that have the right type and order are not copied.

    Args:
        x: inputs (N, ...); or a dictionary or a tuple of them, for models that take several.
        y: each sample's class, or several a sample, integers; −100 is for labels that the loss ignores. Or
            targets that are no classes, floating numbers. Or a dictionary or a tuple of such, for a loss of
            your own.
        validation, test: a pair (x, y) of further samples; or a share of these ones, above 0, drawn by
            `split_seed`. Evaluations while the training goes on are on those to validate on, where there are
            any, and the test samples are looked at once, at its end.
        classes: their names, or their number; None: as many as the largest label says, or for targets that
            are no classes as many as a sample has numbers.
        name: of the data set, for people.

    Raises:
        ConfigurationError: an option makes no sense.
        DataError: what is given is no array of numbers, has a number that is not finite, lengths or shapes
            differ, or a label has no class; with the sample's index.

    >>> import numpy as np
    >>> from_arrays(np.zeros((8, 3)), [0, 1] * 4, test=0.25).train.inputs.dtype
    dtype('float32')
    """
    check_kind("name", name, str, "a text")
    check_count("split_seed", split_seed, 0)
    train = split_of("", (x, y))
    splits: dict[str, Samples] = {"train": train}
    given: dict[str, Any] = {"test": test, "validation": validation}
    shares = {part: each for part, each in given.items() if is_number(each)}
    for part, pair in given.items():
        if part not in shares and pair is not None:
            splits[part] = split = split_of(f"{part} ", _pair(part, pair))
            _check_alike(part, split, train)
    return dataset_of_splits(name, splits, classes, shares, split_seed)


def split_of(prefix: str, pair: Pair) -> Split:
    """A split of anything that holds numbers; the prefix is said before x and y in errors."""
    arrays = iter([inputs_of(f"{prefix}x{place}", each) for place, each in leaves(pair[0])])
    truths = iter([labels_of(f"{prefix}y{place}", each) for place, each in leaves(pair[1])])
    inputs, parts = mapped(lambda _: next(arrays), pair[0]), mapped(lambda _: next(truths), pair[1])
    if len(lengths := {len(each) if each.ndim else 0 for _, each in leaves(parts)}) > 1:
        raise DataError(
            f"{prefix}y has parts of {sorted(lengths)} samples, expected one number: give each all parts"
        )
    try:
        labels = packed(parts)
    except TypeError as error:
        raise DataError(f"{prefix}y: {error}: give them others") from error
    for place, array in ((f"x{place}", each) for place, each in leaves(inputs)):
        for name, each in ((place, array), ("y", labels)):
            if not each.ndim:
                raise DataError(f"{prefix}{name}: found one number, expected an array (N, ...) of N samples")
        if len(array) != len(labels):
            raise DataError(
                f"{prefix}{place} has {len(array)} samples and {prefix}y {len(labels)}, expected as many of "
                "one as of the other: give each sample one label"
            )
    return Split(inputs, labels)


def _pair(part: str, given: object) -> Pair:
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise ConfigurationError(
            f"{part} is {shown(given)}: it must be a pair (x, y), or a share of the samples such as 0.2"
        )
    return given[0], given[1]


def _check_alike(part: str, split: Samples, train: Split) -> None:
    """Raise `DataError` for a split of another type, or with labels of another shape."""
    if form_of(split.inputs) != form_of(train.inputs):
        raise DataError(
            f"{part} x has {form_of(split.inputs) or 'one array'}, expected "
            f"{form_of(train.inputs) or 'one array'} as to train on: give all samples the same parts"
        )
    inputs = zip(leaves(split.inputs), leaves(train.inputs), strict=True)
    pairs = [("x", own, wanted) for (_, own), (_, wanted) in inputs]
    for letter, own, wanted in (*pairs, ("y", split.labels, train.labels)):
        if own.dtype != wanted.dtype or (letter == "y" and own.shape[1:] != wanted.shape[1:]):
            raise DataError(
                f"{part} {letter} is {_told(own)}, expected {_told(wanted)} as to train on: convert one"
            )


def _told(array: Array) -> str:
    return f"{array.dtype} of shape {('N', *array.shape[1:])}".replace("'", "")
