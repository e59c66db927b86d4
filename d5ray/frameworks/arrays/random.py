"""Random numbers of operators over arrays: a generator that begins anew in every pass"""

from collections.abc import Callable
from typing import Any, final


@final
class PassGenerator:
    """Stands for a generator of the array module, made of a seed by `generator`."""

    def __init__(self, generator: Callable[[int], Any]) -> None:
        self._made = generator
        self._seed = 0
        self._current: Any = None

    def begin(self, seed: int) -> None:
        """Draw from this seed from now on; a generator of a GPU takes memory, and is made where one draws."""
        self._seed, self._current = seed, None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._current is None:
            self._current = self._made(self._seed)
        return getattr(self._current, name)
