"""Random numbers that belong to a sample: drawn from (seed, epoch, index), whoever asks and in any order"""

from typing import Any

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ / golden ratio, odd


def mixed(numbers: Keys, *streams: int) -> Keys:
    """Keys (n,) of the numbers (n,); equal numbers have unrelated keys under other streams."""
    state = np.random.SeedSequence(list(streams)).generate_state(1, np.uint64)
    return _scrambled(_scrambled(numbers * GOLDEN + state) + state)


def uniform(keys: Keys, draws: int) -> npt.NDArray[np.float64]:
    """(n, draws) numbers, evenly from [0, 1), of each key; more draws begin with the same numbers."""
    counters = np.arange(1, draws + 1, dtype=np.uint64) * GOLDEN
    bits: Any = _scrambled(keys[:, None] + counters)
    numbers: npt.NDArray[np.float64] = (bits >> np.uint64(11)) * 2.0**-53
    return numbers


def _scrambled(x: Keys) -> Keys:
    """SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
