"""Agents in threads that leave their group and form another one, as others die, go or come"""

from collections.abc import Callable, Iterator, Sequence

import pytest

import d5ray as d5
from d5ray.agent.training_agent import TrainingAgent
from d5ray.distributed.checkpoints.rollback import RestartPoint
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.rendezvous import Rendezvous
from d5ray.training.samplers.shards import Sharing
from tests.agents import Rows, share_of
from tests.distributed.mortal import DIGITS
from tests.together import together


class Regrouped:
    """All agents of an experiment at first; agents: those of the present group, in its order.

    In a mesh whole replicas go and come.
    """

    def __init__(self, wanted: d5.Experiment) -> None:
        self.wanted, self.rendezvous, self.epoch = wanted, Rendezvous(), -1
        self.each = (wanted.agents or 0) // wanted.replicas  # agents of a replica
        self.agents = [self.made(rank) for rank in range(wanted.agents or 0)]

    def made(self, rank: int) -> TrainingAgent:
        agent = TrainingAgent(rank, self.wanted, "run", "node", Rows())
        agent.build(DIGITS, share_of(self.wanted, DIGITS, rank))
        return agent

    def groups(self, size: int) -> list[Group]:
        self.epoch += 1
        address = self.rendezvous.address
        return [
            Group(f"{id(self)}", self.epoch, rank, size, address, timeout_seconds=30) for rank in range(size)
        ]

    def join(self) -> None:
        groups = self.groups(len(self.agents))
        together(lambda at: self.agents[at].join(groups[at]), len(groups))

    def train(self, steps: int) -> None:
        outcomes = together(lambda at: self.agents[at].train(steps), len(self.agents))
        assert all(outcome.completed for outcome in outcomes), outcomes

    def rejoin(
        self, agents: Sequence[TrainingAgent], topology: d5.Topology, sharing: Sequence[Sharing] | None = None
    ) -> list[RestartPoint]:
        """As after a death: all leave their group, and these form another."""
        for agent in self.agents:
            agent.leave()
        groups = self.groups(len(agents))
        given: Sequence[Sharing | None] = sharing or [None] * len(agents)
        return together(lambda at: agents[at].rejoin(groups[at], topology, given[at]), len(agents))

    def change(self, size: int) -> None:
        """The last ones go, or new ones come, last in the group; samples are shared among those there."""
        kept = self.agents[:size]
        kept += [self.made(rank) for rank in range(len(kept), size)]
        replicas = size // self.each
        sharing = [Sharing(replicas, at // self.each) for at in range(size)]
        self.rejoin(kept, d5.topologies.Complete(replicas), sharing)
        self.agents = kept

    def close(self) -> None:
        for agent in self.agents:
            agent.leave()
        self.rendezvous.close()


@pytest.fixture
def regrouped() -> Iterator[Callable[..., Regrouped]]:
    """Makes the agents of an experiment, who have joined and done so many steps; in the end they leave."""
    made: list[Regrouped] = []

    def make(wanted: d5.Experiment, steps: int = 0) -> Regrouped:
        made.append(Regrouped(wanted))
        made[-1].join()
        if steps:
            made[-1].train(steps)
        return made[-1]

    yield make
    for each in made:
        each.close()
