"""Sound as a picture: the logarithm of its energy, by bands of pitch and by short windows of time"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from d5ray.checks import check_count, check_number
from d5ray.errors import ConfigurationError

Sound = npt.NDArray[np.floating[Any]]
FLOOR = 1e-6  # added to an energy, so that silence has a logarithm

LONGEST_WINDOW = 2**20  # samples, for which the table of all bands takes memory


@final
@dataclass(frozen=True)
class LogMel:
    """log( Σ_f M[m, f] |STFT(x)[f, t]|² + 10⁻⁶ ): (bands, windows) of a sound (samples,) between −1 and 1.

    The STFT's windows are Hann's (periodic), follow one another by `hop` and lie within the sound; M are
    triangles of height 1 whose corners are evenly spaced in mel, 2595 log₁₀(1 + f / 700 Hz), from `lowest`
    to half of `rate` (Davis and Mermelstein, doi 10.1109/TASSP.1980.1163420, with HTK's scale).

    rate: samples a second. bands: of pitch. window, hop: in samples. lowest: in hertz.
    """

    rate: int = 16_000
    bands: int = 40
    window: int = 640
    hop: int = 320
    lowest: float = 20.0

    def __post_init__(self) -> None:
        for name in ("rate", "bands", "window", "hop"):
            check_count(name, getattr(self, name), high=LONGEST_WINDOW)
        check_number("lowest", self.lowest, low=0.0, low_included=True, high=self.rate / 2)
        empty = np.flatnonzero(self._triangles.sum(axis=1) == 0)
        if len(empty):
            raise ConfigurationError(
                f"{self!r} has bands that no frequency of its windows falls into, such as the "
                f"{empty[0] + 1}.: take fewer bands, or a longer window"
            )

    def windows(self, samples: int) -> int:
        """The number of windows of a sound; raises `ConfigurationError` if it is too short for one."""
        if samples < self.window:
            raise ConfigurationError(
                f"a sound of {samples} samples is shorter than a window of {self.window}"
            )
        return 1 + (samples - self.window) // self.hop

    def __call__(self, sounds: Sound) -> npt.NDArray[np.float32]:
        """(n, bands, windows) of sounds (n, samples)."""
        self.windows(sounds.shape[1])
        pieces = np.lib.stride_tricks.sliding_window_view(sounds, self.window, axis=1)[:, :: self.hop]
        spectrum = np.fft.rfft(pieces * self._hann, axis=-1)  # (n, windows, frequencies)
        energy = spectrum.real**2 + spectrum.imag**2
        return np.log(energy @ self._triangles.T + FLOOR).transpose(0, 2, 1).astype(np.float32, order="C")

    @cached_property
    def _hann(self) -> npt.NDArray[np.float64]:
        return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(self.window) / self.window)

    @cached_property
    def _triangles(self) -> npt.NDArray[np.float64]:
        """(bands, frequencies)"""
        frequencies = np.fft.rfftfreq(self.window, 1 / self.rate)
        low, high = (2595 * np.log10(1 + hertz / 700) for hertz in (self.lowest, self.rate / 2))
        corners = 700 * (10 ** (np.linspace(low, high, self.bands + 2) / 2595) - 1)
        left, top, right = corners[:-2, None], corners[1:-1, None], corners[2:, None]
        rising, falling = (frequencies - left) / (top - left), (right - frequencies) / (right - top)
        return np.maximum(0.0, np.minimum(rising, falling))
