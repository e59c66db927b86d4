"""Checks for samplers of your own: they do what they say, and show the labels evenly"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from d5ray.checks import LARGEST, MOST_RANKS, check_count, check_kind
from d5ray.errors import ConfigurationError
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.samplers.sampler import Indices, Sampler
from d5ray.training.samplers.shards import Draw, Shards, drawn

MOST_DRAWS = 100_000_000


def _check_counts(**counts: object) -> None:
    for name, value in counts.items():
        check_count(name, value, high=MOST_RANKS if name == "agents" else LARGEST)


def check_sampler(
    sampler: Sampler, samples: int, *, agents: int = 3, batch_size: int = 7, epochs: int = 3, seed: int = 0
) -> tuple[str, ...]:
    """The faults of a sampler over this many samples, in sentences; empty if all of this holds.

    - Every epoch has the length that it says, of indices that the split has, none twice in it unless the
      sampler states `replacement`, and all of them where the length is that of the split.
    - Drawn again, an epoch is the same, so all agents agree on it; and epochs differ, unless the sampler
      states that they do not vary.
    - The agents' shares of an epoch are the epoch, cut into pieces, whatever the remainder.
    - Going on in the middle of an epoch, or of a later one, gives the draws that would have come.

    Raises `ConfigurationError` where the sampler does not take that many samples at all.

    >>> import d5ray as d5
    >>> check_sampler(d5.samplers.ShuffleSampler(), 100)
    ()
    """
    _check_counts(samples=samples, agents=agents, batch_size=batch_size, epochs=epochs)
    check_count("seed", seed, low=0)
    if samples * epochs > MOST_DRAWS:
        raise ConfigurationError(
            f"{samples:,} samples in {epochs:,} epochs are more than {MOST_DRAWS:,} draws: check fewer"
        )
    if not isinstance(sampler, Sampler):
        raise ConfigurationError(f"found {type(sampler).__name__}: give a Sampler such as ShuffleSampler()")
    shards = Shards(samples, agents, batch_size, sampler, seed)
    try:
        shown = [_epoch(shards, epoch) for epoch in range(epochs)]
    except ConfigurationError as error:
        return (str(error),)
    return tuple(_complaints(shards, shown))


def _complaints(shards: Shards, shown: list[Indices]) -> Iterator[str]:
    epochs = len(shown)
    spoilt = [each for epoch, order in enumerate(shown) for each in _of_order(shards, epoch, order)]
    yield from spoilt
    if shards.sampler.varies and shards.length > 8 and epochs > 1:  # of a few samples, epochs may well agree
        same = [epoch for epoch in range(1, epochs) if np.array_equal(shown[0], shown[epoch])]
        if same:
            yield (
                f"epoch {same[0]} has the order of epoch 0: draw it from (seed, epoch), or set varies = False"
            )
    for epoch, order in enumerate(shown):
        if not np.array_equal(_epoch(shards, epoch), order):
            yield (
                f"epoch {epoch}, drawn twice, came in two orders, so agents would not agree: draw it from "
                "(seed, epoch) alone"
            )
            return  # nothing below can hold
    if spoilt:
        return
    yield from _of_shares(shards, shown)
    yield from _of_resumption(shards, epochs)


def _epoch(shards: Shards, epoch: int) -> Indices:
    """The order as the sampler gives it now; what a process keeps of it would hide that it changes."""
    return drawn(shards.sampler_of(epoch), shards.samples, epoch, shards.seed).copy()


def _of_order(shards: Shards, epoch: int, order: Indices) -> Iterator[str]:
    sampler, samples = shards.sampler, shards.samples
    counts = np.bincount(order, minlength=samples)
    if not sampler.replacement and counts.max() > 1:
        yield (
            f"epoch {epoch} has sample {counts.argmax()} {counts.max()} times: once is enough, or set "
            "replacement = True"
        )
    if not sampler.replacement and shards.length == samples and counts.min() == 0:
        yield f"epoch {epoch} leaves out sample {counts.argmin()}, and {int((counts == 0).sum())} in all"


def _of_shares(shards: Shards, shown: list[Indices]) -> Iterator[str]:
    for epoch, order in enumerate(shown):
        steps = zip(*(shards.epoch(epoch, rank) for rank in range(shards.agents)), strict=True)
        joined = [draw.indices for step in steps for draw in step]
        if not np.array_equal(np.concatenate(joined), order):
            yield f"the agents' shares of epoch {epoch}, put together, are not the epoch"


def _of_resumption(shards: Shards, epochs: int) -> Iterator[str]:
    steps = shards.steps_per_epoch
    whole = list(islice(shards.draws(0), epochs * steps))
    for begin in sorted({1, steps // 2, steps - 1, steps, steps + 1, epochs * steps - 1} - {0}):
        rest = islice(shards.draws(0, first_step=begin), max(0, len(whole) - begin))
        if not all(map(_equal, rest, whole[begin:])):
            yield f"going on at step {begin} gives other samples than would have come"


def _equal(one: Draw, other: Draw) -> bool:
    same = (one.weight, one.epoch, one.ends_epoch) == (other.weight, other.epoch, other.ends_epoch)
    return same and np.array_equal(one.indices, other.indices)


@dataclass(frozen=True, eq=False)
class LabelBias:
    """The labels that each agent sees in an epoch, against those of the data set.

    counts: (agents, classes) of int64. expected: (agents, classes), as many samples in the data set's own
    proportions. chi_squared, p_values: (agents,); a p-value is the probability that a share drawn evenly
    differs from the data set's proportions at least as much. p_value: of all agents together.
    """

    counts: npt.NDArray[np.int64]
    expected: npt.NDArray[np.float64]
    chi_squared: npt.NDArray[np.float64]
    p_values: npt.NDArray[np.float64]

    @property
    def p_value(self) -> float:
        """The smallest, times the number of agents (Bonferroni)."""
        return float(min(1.0, self.p_values.min() * len(self.p_values)))


def label_bias(
    dataset: Dataset,
    sampler: Sampler,
    *,
    epoch: int = 0,
    seed: int = 0,
    agents: int = 1,
    batch_size: int = 32,
) -> LabelBias:
    """A test that an epoch shows the classes in the data set's own proportions, to each of the agents.

    Pearson's χ² test, with the classes that the data set has; for shares drawn without replacement, whose
    counts spread less, χ² is divided by (N − n) / (N − 1), where the share has n of N samples. Labels of
    more than one dimension are counted one by one.

    >>> import d5ray as d5
    >>> bias = label_bias(d5.datasets.load_dataset("digits"), d5.samplers.ShuffleSampler())
    >>> int(bias.counts.sum()), bias.p_value
    (1438, 1.0)
    """
    check_kind("dataset", dataset, Dataset, 'a Dataset, such as load_dataset("digits")')
    check_kind("sampler", sampler, Sampler, "a Sampler such as ShuffleSampler()")
    _check_counts(agents=agents, batch_size=batch_size)
    check_count("epoch", epoch, low=0)
    check_count("seed", seed, low=0)
    shards = Shards(len(dataset.train), agents, batch_size, sampler, seed)
    labels, classes = dataset.train.labels, len(dataset.classes)
    if not np.issubdtype(labels.dtype, np.integer):
        raise ConfigurationError(
            f"the labels of {dataset.name!r} are {labels.dtype}: only classes, integers, can be counted"
        )
    present = np.bincount(labels.reshape(-1), minlength=classes)  # (classes,)
    own = [np.concatenate([draw.indices for draw in shards.epoch(epoch, rank)]) for rank in range(agents)]
    counts = np.stack([np.bincount(labels[share].reshape(-1), minlength=classes) for share in own])
    expected = counts.sum(axis=1, keepdims=True) * (present / present.sum())
    seen = (present > 0) & (expected > 0)
    terms = np.divide((counts - expected) ** 2, expected, out=np.zeros(expected.shape), where=seen)
    narrower = np.ones(agents)  # how much less than independent draws the counts spread
    if not sampler.replacement:
        sizes = np.array([len(share) for share in own])
        narrower = (shards.samples - sizes) / max(1, shards.samples - 1)
    chi_squared = np.divide(terms.sum(axis=1), narrower, out=np.zeros(agents), where=narrower > 0)
    return LabelBias(counts, expected, chi_squared, _tail(chi_squared, int((present > 0).sum()) - 1))


def _tail(chi_squared: npt.NDArray[np.float64], degrees: int) -> npt.NDArray[np.float64]:
    """P(X ≥ χ²) for X of the χ² distribution with that many degrees of freedom."""
    from scipy.special import chdtrc  # noqa: PLC0415 - loaded when asked for

    return np.asarray(chdtrc(degrees, chi_squared)) if degrees > 0 else np.ones(len(chi_squared))
