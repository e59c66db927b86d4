"""Dependence in time: how many independent samples a series is worth, since slow steps follow slow ones

The autocorrelation time: Geyer, Practical Markov Chain Monte Carlo, Statistical Science 7 (1992), doi
10.1214/ss/1177011137, section 3.3. The variance from the sums of long blocks: Law and Kelton, Simulation
Modeling and Analysis, section 9.5.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

FEWEST_TIMES = 30  # autocorrelation times that a series must last to be judged: below, the time is not known
BLOCK_TIMES = 5  # autocorrelation times in a block, so that neighbouring blocks hardly resemble each other
MOST_BLOCKS = 20
LEAST_TIME = 0.1  # of neighbours that make up for each other
FINEST = 1 << 15  # values that are looked at one by one; of a longer series, the means of neighbours


@final
@dataclass(frozen=True)
class EffectiveSamples:
    """The number of independent values that a series is worth for one statistic of it.

    samples: as many independent values would tell as much, more than there are where neighbours make up for
    each other; blocks: over which that was found, 0 where the series is too short to know; time: the longest
    autocorrelation time found, in values, at least 1.
    """

    samples: float
    blocks: int
    time: float


def worth(values: Floats, influence: Floats) -> EffectiveSamples:
    """The number of independent values that `values` (n,), in the order of time, are worth for a statistic.

    influence: (n,), how each of the values moves the statistic, zero in the mean: for a mean, the value less
        the mean; for a quantile, whether the value lies below it. Its variance over long stretches is that of
        the statistic.

    The longest of three autocorrelation times decides whether the series lasts long enough to be judged:
    that of the influence, of the values, and of their ranks, in which a seldom, slow disturbance shows that
    the influence does not. The variance is the mean of two estimates, that from the autocorrelations of the
    influence and that from its sums over 6 to 20 blocks of at least five autocorrelation times.
    """
    n = len(values)
    times = [autocorrelation_time(influence), autocorrelation_time(_ranks(values))]
    if np.isfinite(values).all():
        times.append(autocorrelation_time(values))
    longest = max(1.0, *times)
    if n < FEWEST_TIMES * longest:
        return EffectiveSamples(n / longest, 0, longest)
    blocks = min(MOST_BLOCKS, int(n / (BLOCK_TIMES * longest)))
    variance = float(np.mean(influence**2))
    if not variance:
        return EffectiveSamples(n, blocks, longest)
    sums = np.add.reduceat(influence, np.arange(blocks) * n // blocks)
    over_blocks = float(np.sum(sums**2)) / n * blocks / (blocks - 1) / variance
    return EffectiveSamples(n / max((times[0] + over_blocks) / 2, LEAST_TIME), blocks, longest)


def autocorrelation_time(series: Floats) -> float:
    """1 + 2 Σ ρ_k, the sum over lags k of the autocorrelations: values of the series per independent one.

    Sums of neighbouring autocorrelations are added as long as they are positive and fall, since what follows
    is noise. (1 + φ)/(1 − φ) for x_t = φ x_(t−1) + ε_t; 1 for what is constant.

    >>> round(autocorrelation_time(np.repeat(np.random.default_rng(0).normal(size=5000), 8)))
    8
    """
    n = len(series)
    if n < 4 or not np.ptp(series) > 0:
        return 1.0
    if n > FINEST:
        edges = np.arange(FINEST) * n // FINEST
        means = np.add.reduceat(series, edges) / np.diff(np.r_[edges, n])
        return float(n / FINEST * np.var(means) / np.var(series)) * autocorrelation_time(means)
    centred = series / np.abs(series).max()
    centred = centred - centred.mean()
    spectrum = np.fft.rfft(centred, 1 << (2 * n - 1).bit_length())
    covariance = np.fft.irfft(np.abs(spectrum) ** 2)[:n]
    pairs = covariance[0 : n - 1 : 2] + covariance[1:n:2]
    ended = np.flatnonzero(pairs <= 0)
    positive = pairs[: ended[0]] if len(ended) else pairs
    return max(0.0, 2 * float(np.minimum.accumulate(positive).sum()) / float(covariance[0]) - 1)


def _ranks(values: Floats) -> Floats:
    """The rank of every value; equal ones share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Floats = (ends - (counts - 1) / 2)[place]
    return ranks
