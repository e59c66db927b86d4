"""EqualityCheck: agents that train one model compare a checksum of their parameters now and then"""

import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from d5ray.distributed.checkpoints.checksum import checksum
from d5ray.distributed.communicators.agreement.rows import gathered
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.optimizers.exchange import ONE_MODEL
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.metrics.record.tensor_file import Array
from d5ray.networks.executors.executor import Executor, FlatExecutor

CHECK_STEPS: Final = 100  # between two comparisons
NEVER: Final = sys.maxsize


@final
@dataclass(frozen=True)
class Divergence:
    """Agents whose parameters differ though they train one model.

    step       complete steps, after which they were compared
    since      complete steps after which they were equal for the last time
    checksums  of the parameters, by the agent's rank
    """

    step: int
    since: int
    checksums: dict[int, str]

    @property
    def differ(self) -> tuple[int, ...]:
        """The ranks of those that differ from most of them; all, where no more than half are equal."""
        (usual, count), *_ = Counter(self.checksums.values()).most_common()
        most = 2 * count > len(self.checksums)
        return tuple(rank for rank, text in self.checksums.items() if not (most and text == usual))

    def __str__(self) -> str:
        named = ", ".join(f"TrainingAgent(rank={rank}) has {self.checksums[rank]}" for rank in self.differ)
        others = [text for rank, text in self.checksums.items() if rank not in self.differ]
        usual = (
            f", the {'other' if len(others) == 1 else f'other {len(others)}'} {others[0]}" if others else ""
        )
        return (
            f"the agents' parameters differ after step {self.step}, though they train one model (checksums: "
            f"{named}{usual}); they were equal after step {self.since}. Memory that fails, processors or "
            "libraries that round differently, or code that changes x on some agents alone, make such: go on "
            "from a checkpoint of a step until then, without those agents. A rule whose agents are to differ "
            "names another invariant, or says one_model = False"
        )


@final
class EqualityCheck:
    """Compares an agent's parameters with the others' when it is time to.

    since  the complete steps after which all were equal for the last time
    due    those after which the next comparison is, at the earliest; never for a rule with another invariant,
           and for agents that do not wait for each other
    """

    def __init__(
        self,
        rank: int,
        rule: DistributedOptimizer,
        communication: Communicator,
        step: int,
        executor: Executor | None = None,
    ) -> None:
        self._rank, self._rule, self._communication, self._executor = rank, rule, communication, executor
        self._compares = compares(rule) and communication.size > 1
        self.equal_at(step)

    def equal_at(self, step: int) -> None:
        """Take notice that all are equal after that many steps."""
        self.since = step
        self.due = (step // CHECK_STEPS + 1) * CHECK_STEPS if self._compares else NEVER

    def compare(self, step: int) -> Divergence | None:
        """Compare x after that many steps; gives the divergence where agents differ. All members call it."""
        if not self._compares or self.since == step or not self._rule.equal_after(step):
            return None
        x = self._rule.x
        fixed = 0 if self._executor is None else checksum_of_fixed(self._executor)
        found = divergence(gathered(told(self._rank, x, step, self.since, fixed), self._communication, x))
        if found is None:
            self.equal_at(step)
        return found


def compares(rule: DistributedOptimizer) -> bool:
    """True if the agents of this rule are to have the same x, and can be asked for it together."""
    return rule.invariant in ("", ONE_MODEL) and rule.one_model and not rule.one_sided


def told(rank: int, x: Any, step: int, since: int, fixed: int = 0) -> Array:
    """A row (4,) for `gathered`, by which an agent tells the others of its x (n,) after that many steps.

    fixed: a checksum of what is not trained.
    """
    return np.array([rank, checksum(x) ^ fixed, step % 2**64, since], np.uint64).view(np.int64)


def checksum_of_fixed(executor: FlatExecutor) -> int:
    """64 bits that follow from the bytes of all parameters that are not trained, in their order; 0: none."""
    sums: list[int] = []
    executor.visit_fixed(lambda _, values: sums.append(checksum(values)))
    return checksum(np.array(sums, np.uint64)) if sums else 0


def divergence(rows: Array) -> Divergence | None:
    """The divergence of agents with these rows (members, 4); None where the furthest are equal."""
    furthest = rows[rows[:, 2] == rows[:, 2].max()]
    checksums = {int(rank): f"{int(found) % 2**64:016x}" for rank, found, *_ in furthest}
    if len(set(checksums.values())) == 1:
        return None
    return Divergence(int(furthest[0, 2]), int(furthest[0, 3]), checksums)
