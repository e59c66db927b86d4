"""The agents of a simulation: who is there, how they join each other, and how they act together"""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, final

from d5ray.actors.metrics.aggregator import MetricsAggregator
from d5ray.agent.building import BuiltSizes
from d5ray.agent.connections import LateEntry
from d5ray.agent.faults import AgentFaults, Do, left_after
from d5ray.agent.training_agent import TrainingAgent
from d5ray.distributed.checkpoints.rollback import RestartPoint
from d5ray.distributed.faults.plan import Faults
from d5ray.distributed.group.group import Group
from d5ray.distributed.optimizers.exchange import ExchangeVia
from d5ray.distributed.simulation.clock import WATCH_EVENTS, Task
from d5ray.distributed.simulation.world import SimulatedWorld, Simulation
from d5ray.distributed.topologies.survivors import survivors
from d5ray.errors import PeerLost
from d5ray.experiment import Experiment
from d5ray.metrics.record.schema import table_of
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.samplers.shards import Sharing

T = TypeVar("T")
DIED: Final = "agent_died"


@final
class DirectSink:
    """Sink of rows: hands them to the aggregator of this process."""

    def __init__(self, aggregator: MetricsAggregator) -> None:
        self._aggregator = aggregator

    def samples(self, batch: Any) -> None:
        self._aggregator.append(batch)

    def frames(self, batch: Any) -> None:
        self._aggregator.append_frames(batch)

    def events(self, batch: Any) -> None:
        self._aggregator.append_events(batch)

    def file(self, name: str, data: bytes) -> None:
        self._aggregator.keep_file(name, data)

    def drain(self) -> None:
        pass


@final
class Members:
    """The agents by rank; one that is started again stands in the place of the one before.

    gone: those that are not there, or not yet. attempts: how often each was started again. tasks: what each
    does now, or did last. do: what does a fault that an agent does itself.
    """

    def __init__(
        self,
        experiment: Experiment,
        simulation: Simulation,
        folder: Path,
        faults: Faults,
        do: Callable[[int], Do],
    ) -> None:
        self.experiment, self.simulation, self.run_id = experiment, simulation, folder.name
        self.aggregator = MetricsAggregator(str(folder.parent), folder.name)
        self._folder, self._faults, self._do = folder, faults, do
        self._sink = DirectSink(self.aggregator)
        count = experiment.agents or 1
        self.gone: set[int] = set(experiment.late_agents)
        self.attempts = dict.fromkeys(range(count), 0)
        self.tasks: dict[int, Task] = {}
        self.epoch = 0
        self._noted: set[tuple[str, int, int]] = set()  # name, rank and time of each event
        self.agents = [self._made(rank) for rank in range(count)]

    @property
    def left(self) -> list[int]:
        """The ranks of the agents that are there."""
        return [rank for rank in range(len(self.agents)) if rank not in self.gone]

    def build(self, dataset: Dataset) -> list[BuiltSizes]:
        """Let all build their models."""
        self._dataset = dataset
        return [agent.build(dataset) for agent in self.agents]

    def join(self) -> None:
        """Let all agents meet for the first time, or those that do not come late."""
        if self.gone:
            self._join_without_late()
        else:
            self.together(lambda rank: self.agents[rank].join(self.group(0, rank, len(self.agents))))

    def start(self, rank: int) -> None:
        """Start an agent anew in the place of one that died."""
        self.attempts[rank] += 1
        self.agents[rank] = self._made(rank)
        self.agents[rank].build(self._dataset)

    def let_in(self, rank: int, *, step: int, begins: bool = False) -> None:
        """An agent joins those that are there, at this step; begins: it has its parameters already."""
        simulation = self.simulation
        peers = ExchangeVia.PEERS in self.experiment.distributed_optimizer.exchange
        if simulation.servers is not None and not begins:
            simulation.servers.enter(rank)
        first = self.agents[self.left[0]] if self.left and not begins else None
        given = first.flat_parameters() if peers and first else None
        buffers = first.buffers() if first else None
        group = self.group(1, rank, len(self.agents))
        absent = tuple(self.gone - {rank})
        self.agents[rank].join_late(LateEntry(group, step, None, {}, given, buffers, absent))
        simulation.meadow.admit(rank)
        for other in self.left:
            self.agents[other].admit(rank)
        self.gone.discard(rank)

    def form_again(self, sharers: Sequence[int]) -> dict[int, RestartPoint]:
        """A new group of those that are there; what each agreed on, empty where another one died at it.

        sharers: for whom a step has a piece each, who are there or not.
        """
        self.epoch += 1
        self.simulation.network.forget()
        ranks, topology = self.left, self.experiment.topology
        assert topology is not None
        among = survivors(topology, self.gone)
        self.simulation.members = tuple(ranks)
        shares = Sharing.among(sharers, ranks)

        def rejoin(rank: int) -> RestartPoint | None:
            group = self.group(self.epoch, ranks.index(rank), len(ranks))
            try:
                return self.agents[rank].rejoin(group, among, shares[rank])
            except PeerLost:
                return None

        agreed = self.together(rejoin, ranks=ranks)
        found = {rank: point for rank, point in agreed.items() if point is not None}
        return found if len(found) == len(ranks) else {}

    def together(
        self,
        call: Callable[[int], T],
        watch: Callable[[], None] | None = None,
        ranks: Iterable[int] | None = None,
        every: int = WATCH_EVENTS,
    ) -> dict[int, T]:
        """call(rank) for these agents, or all that are there, as tasks on the virtual clock; the results.

        watch: called once in `every` events.
        """
        clock = self.simulation.clock
        ranks = self.left if ranks is None else ranks
        self.tasks = {rank: clock.start(partial(call, rank), repr(self.agents[rank])) for rank in ranks}
        clock.run(list(self.tasks.values()), watch, every)
        return {rank: task.result for rank, task in self.tasks.items() if rank not in self.gone}

    def note(self, name: str, rank: int, **detail: object) -> None:
        """Keep an event of the run as a whole; rank: of whom it tells, or -1."""
        now = self.simulation.clock.now()
        while (name, rank, now) in self._noted:  # equal ones would be taken for one that was sent twice
            now += 1
        self._noted.add((name, rank, now))
        row = {
            "run_id": self.run_id, "agent": "driver", "rank": rank, "name": name,
            "t_wall": now, "t_mono": now, "detail": json.dumps(detail),
        }  # fmt: skip
        batch = table_of("events", [row]).combine_chunks().to_batches()[0]
        (self.aggregator.append_deaths if name == DIED else self.aggregator.append_events)(batch)

    def rows(self) -> int:
        """The rows of all agents; those that one had not sent died with it."""
        there = {
            (repr(self.agents[rank]), self.attempts[rank]): self.agents[rank].rows() for rank in self.left
        }
        return sum((self.aggregator.received() | there).values())

    def group(self, epoch: int, rank: int, size: int) -> Group:
        """The group of that epoch, as the member with this rank in it joins it."""
        return Group(self.run_id, epoch, rank, size, timeout_seconds=self.experiment.timeout_seconds)

    # --------------------------------------------------------------------------------------------------

    def _made(self, rank: int) -> TrainingAgent:
        attempt = self.attempts[rank]
        own = left_after(self._faults.of_agent(rank), attempt)
        return TrainingAgent(
            rank,
            self.experiment,
            self.run_id,
            f"agent-{rank}",
            self._sink,
            SimulatedWorld(self.simulation, rank),
            attempt,
            str(self._folder),
            faults=AgentFaults(own, self._do(rank), again=attempt > 0) if own else None,
        )

    def _join_without_late(self) -> None:
        """Let those that are there join each other so that the late ones can come."""
        present, late = self.left, sorted(self.gone)
        topology = self.experiment.topology
        assert topology is not None
        among = survivors(topology, self.gone)
        self.together(
            lambda rank: self.agents[rank].take_first(self.group(0, present.index(rank), len(present)), among)
        )
        self.gone.update(present)
        for rank in present:
            self.together(partial(self.let_in, step=0, begins=True), ranks=[rank])
        servers = self.simulation.servers
        for rank in late:
            self.simulation.meadow.gone.add(rank)
            if servers is not None:
                servers.leave(rank)
