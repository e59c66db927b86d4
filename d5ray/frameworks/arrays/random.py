"""Random numbers of operators over arrays: a generator that begins anew in every pass"""

from collections.abc import Callable
from typing import Any, final

from d5ray.networks.stages.random_seeds import NodeSeeds


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


@final
class NodeGenerator:
    """The generator of one node, which begins anew with every micro-batch, from the node's seed for it."""

    def __init__(self, generator: Callable[[int], Any], seeds: NodeSeeds, node: str) -> None:
        self._made, self._seeds, self._node = generator, seeds, node
        self._begun = -1
        self._current: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._begun != self._seeds.begun:
            self._current, self._begun = self._made(self._seeds.seed_of(self._node)), self._seeds.begun
        return getattr(self._current, name)
