"""An executor whose gradients take longer: by a plan for stragglers, or on the clock of a simulation"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, final

import numpy as np

from d5ray.networks.executors.executor import Executor, WrappedExecutor
from d5ray.networks.executors.gradient_buckets import OnReady

FORWARD_SHARE = 1 / 3  # of a gradient's time: the backward pass takes about twice the forward pass


class Stretch(ABC):
    """The delay that an executor's computation gets."""

    @abstractmethod
    def begin(self) -> None:
        """Called when a computation begins."""

    @abstractmethod
    def pass_time(self, share: float) -> int:
        """Let this share of the computation's time pass; returns how much it was, in ns."""


@final
class DelayedExecutor(WrappedExecutor):
    """A wrapper that delays another executor: first the inner one computes, then the time passes.

    Buckets are announced while the time of the backward pass goes by, at equal intervals, outside the
    framework's own backward pass; so what they start may switch to other tasks.
    """

    def __init__(self, inner: Executor, stretch: Stretch) -> None:
        super().__init__(inner)
        self._stretch = stretch
        self._random = inner.random_state()  # its own, whoever computes in between

    def inference_and_backprop(
        self, inputs: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], on_ready: OnReady | None = None
    ) -> float:
        stretch = self._stretch
        stretch.begin()
        self._inner.set_random_state(self._random)
        loss = self._inner.inference_and_backprop(inputs, labels)
        self._random = self._inner.random_state()
        if on_ready is None:
            whole = stretch.pass_time(1.0)
            forward = round(whole * FORWARD_SHARE)
            self.forward_ns += forward
            self.backward_ns += whole - forward
            return loss
        self.forward_ns += stretch.pass_time(FORWARD_SHARE)
        if self._buckets is None:
            self.buckets(self.parameters.nbytes or 1)
        assert self._buckets is not None
        for begin, end in self._buckets.ranges:
            self.backward_ns += stretch.pass_time((1 - FORWARD_SHARE) / len(self._buckets.ranges))
            on_ready(begin, end)
        return loss

    def random_state(self) -> np.ndarray[Any, Any]:
        return self._random

    def set_random_state(self, state: np.ndarray[Any, Any]) -> None:
        self._random = state

    def draw_from(self, seed: int, rank: int) -> None:
        self._inner.draw_from(seed, rank)
        self._random = self._inner.random_state()


@final
class Slowed(Stretch):
    """A delay in real time: a computation is followed by a pause, so that it takes a multiple of its time."""

    def __init__(
        self, factor: Callable[[], float], now: Callable[[], int], sleep: Callable[[float], None]
    ) -> None:
        self._factor, self._now, self._sleep = factor, now, sleep
        self._begin = 0
        self._pause = -1

    def begin(self) -> None:
        self._begin = self._now()
        self._pause = -1

    def pass_time(self, share: float) -> int:
        begin = self._begin
        if self._pause < 0:  # the computation is just over
            self._pause = round((self._now() - begin) * (self._factor() - 1))
        else:
            begin = self._now()
        self._sleep(share * self._pause * 1e-9)
        return self._now() - begin


@final
class Virtual(Stretch):
    """A delay on a simulation's clock: a computation takes as long as `seconds` says."""

    def __init__(self, seconds: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._seconds, self._sleep = seconds, sleep
        self._duration = 0.0

    def begin(self) -> None:
        self._duration = self._seconds()

    def pass_time(self, share: float) -> int:
        self._sleep(share * self._duration)
        return round(share * self._duration * 1e9)
