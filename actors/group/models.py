"""The whole models of replicas, put together of what their agents give"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import final

from d5ray.actors.group.replicas import Replicas
from d5ray.actors.group.run_row import RunPlan
from d5ray.checks import wrong_kind
from d5ray.errors import AgentError
from d5ray.metrics.record.model_state import ModelState, mean_of


@final
class Models:
    """The models of a run's replicas; without a mesh an agent is a replica.

    present: the ranks of the agents that are there, as they are now. ask(ranks, of_servers): their models by
    rank.
    """

    def __init__(
        self,
        plan: RunPlan,
        present: Callable[[], Collection[int]],
        ask: Callable[[Collection[int], bool], Mapping[int, ModelState]],
    ) -> None:
        self._shares, self._replicas = plan.shares, Replicas(plan.experiment)
        self._present, self._ask = present, ask

    @property
    def whole(self) -> list[int]:
        """The replicas of which every agent is there."""
        present = set(self._present())
        numbers = sorted(self._replicas.numbers(present))
        return [number for number in numbers if present.issuperset(self._replicas.agents_of(number))]

    @property
    def first(self) -> int:
        """The first of them; raises `AgentError` where none is left."""
        if not self.whole:
            raise AgentError("nobody is left who has the whole model")
        return self.whole[0]

    def of(self, which: int | str) -> ModelState:
        """The model of a replica, by its number or as the first "agent", the "mean", or the "servers"."""
        if which == "servers":
            return self._of([self.first], of_servers=True)[0]
        if which == "mean":
            first = self.first
            return mean_of(self._of([first, *self.whole[1:]]))
        if which == "agent":
            return self._of([self.first])[0]
        if not isinstance(which, int) or isinstance(which, bool):
            raise wrong_kind("rank", which, "the rank of an agent, or one of 'agent', 'mean', 'servers'")
        if which not in self.whole:
            there = ", ".join(map(str, self.whole)) or "nobody"
            raise AgentError(
                f"there is no model {which}: no such agent, or it has died or not come yet; those that are "
                f"there: {there}"
            )
        return self._of([which])[0]

    def _of(self, replicas: Sequence[int], *, of_servers: bool = False) -> list[ModelState]:
        ranks = [rank for replica in replicas for rank in self._replicas.agents_of(replica)]
        given = self._ask(ranks, of_servers)
        return [self._joined(replica, given) for replica in replicas]

    def _joined(self, replica: int, given: Mapping[int, ModelState]) -> ModelState:
        first = given[self._replicas.agents_of(replica)[0]]
        if self._shares is None or not self._replicas.several:
            return first
        tensors = {rank: dict(state.tensors) for rank, state in given.items()}
        whole = self._shares.whole(tensors, replica)
        of = first.of if first.of.startswith("the ") else f"replica {replica}"
        return replace(first, tensors=whole, of=of)
