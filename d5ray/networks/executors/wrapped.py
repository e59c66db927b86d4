"""The executor around another one: that computes, evaluates and draws, and has the arrays"""

from d5ray.networks.executors.executor import Executor, now_of


class WrappedExecutor(Executor):
    """An executor around another one, which changes how a training pass is done; all else is the other's."""

    def __init__(self, inner: Executor) -> None:
        self._inner = inner
        self.notes, self.values = inner.notes, inner.values
        self._hold(inner)

    @property
    def inner(self) -> Executor:
        """The executor that computes."""
        return self._inner

    inference = now_of("_inner.inference")
    evaluate = now_of("_inner.evaluate")
    counting = now_of("_inner.counting")
    weight = now_of("_inner.weight")
    weighs = now_of("_inner.weighs")
    unused = now_of("_inner.unused")
    released = now_of("_inner.released")
    release = now_of("_inner.release")
    adopt = now_of("_inner.adopt")
    forbid_adopting = now_of("_inner.forbid_adopting")
    moving = now_of("_inner.moving")
    frozen_statistics = now_of("_inner.frozen_statistics")
    visit_fixed = now_of("_inner.visit_fixed")
    random_state = now_of("_inner.random_state")
    set_random_state = now_of("_inner.set_random_state")
    draw_from = now_of("_inner.draw_from")

    def take_released(self) -> None:
        self._inner.take_released()
        self._hold(self._inner)
