"""Where operators over arrays draw their random numbers: a generator that begins anew in every pass"""

from collections.abc import Callable
from typing import Any, final


@final
class Draws:
    """Stands for a generator of the array module, made of a seed by `generator`."""

    def __init__(self, generator: Callable[[int], Any]) -> None:
        self._made = generator
        self._current: Any = None

    def begin(self, seed: int) -> None:
        """What is drawn from now on follows from this seed."""
        self._current = self._made(seed)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._current is None:
            self.begin(0)
        return getattr(self._current, name)
