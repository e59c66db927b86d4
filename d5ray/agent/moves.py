"""MovesCheck: a rule of the user's own that leaves the parameters as they were is named, not completed"""

from collections.abc import Iterator
from typing import Any, Final, final

from d5ray.distributed.checkpoints.checksum import checksum
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.errors import ConfigurationError
from d5ray.training.optimizers.optimizer import Optimizer
from d5ray.training.optimizers.scheduled import NOTHING

LOOKS: Final = 10  # steps within which x has moved
FEWEST: Final = 2  # steps after which a training that ends tells
DEPTH: Final = 3  # of rules in rules


@final
class MovesCheck:
    """Looks whether x moves in the first steps, where the user wrote the rule or the base optimizer.

    looks: in how many further steps; none as soon as x has moved.
    """

    def __init__(self, rule: DistributedOptimizer) -> None:
        self._rule = rule
        self.looks = LOOKS if not _is_own(rule) or any(_foreign(rule.base, DEPTH)) else 0
        self._first = checksum(rule.x) if self.looks else 0

    def look(self, gradients: Any) -> None:
        """Look at x after a step. Raises `ConfigurationError` where it has never moved by gradients (n,)."""
        if checksum(self._rule.x) != self._first:
            self.looks = 0
            return
        self.looks -= 1
        if not self.looks:
            self._complain(LOOKS, gradients)

    def end(self, gradients: Any) -> None:
        """Complain as `look` does where a training ends before."""
        steps = LOOKS - self.looks
        if self.looks and steps >= FEWEST:
            self._complain(steps, gradients)

    def _complain(self, steps: int, gradients: Any) -> None:
        if self._rule.learning_rate > NOTHING and bool((gradients != 0).any()):
            raise ConfigurationError(
                f"the parameters are after {steps} steps of {self._rule!r} with {self._rule.base!r} as they "
                "were, though there are gradients: a rule changes x in place, as by x -= learning_rate * "
                "gradient; x = x - … makes another array, which nobody reads, and what is returned nobody "
                "takes"
            )


def _is_own(value: object) -> bool:
    return type(value).__module__.startswith("d5ray.")


def _foreign(rule: Optimizer, depth: int) -> Iterator[Optimizer]:
    """The rule, and those that it wraps, whose classes are not d5ray's."""
    if not _is_own(rule):
        yield rule
    for inner in getattr(rule, "__dict__", {}).values() if depth else ():
        if isinstance(inner, Optimizer):
            yield from _foreign(inner, depth - 1)
