# mypy: ignore-errors
"""`cupy.random`: a generator, made on the device that is current"""

import numpy as np

import cupy


class Generator:
    def __init__(self, seed):
        self._generator, self._device = np.random.default_rng(seed), cupy.cuda.Device()

    def random(self, size=None, dtype=np.float64):
        return cupy.ndarray(self._generator.random(size, dtype), self._device)


def default_rng(seed=None):
    return Generator(seed)
