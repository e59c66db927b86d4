"""Agents of a mesh in processes of their own, one of which kills itself at some instant of a step"""

import os
import signal
import threading
import time
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any, final

import numpy as np

import d5ray as d5
from d5ray.agent.training_agent import TrainingAgent
from d5ray.distributed.checkpoints.rollback import RestartPoint
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.rendezvous import Rendezvous
from d5ray.frameworks.torch import build
from d5ray.networks.layers.from_layers import network_from_layers
from d5ray.networks.zoo import catalogue
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.events.event import Event
from d5ray.training.events.moment import Moment
from tests.agents import Rows, share_of
from tests.distributed.mortal import processes, said

Array = np.ndarray[Any, Any]


def float64_mlp(data: Dataset) -> d5.Network:
    """A small one with four layers."""
    layers = catalogue.network("mlp", data.sample_shape, len(data.classes), hidden=(20, 40, 40))
    state = build.seeded(layers, data.sample_shape, 1).state_dict()
    given = {name: value.double().numpy() for name, value in state.items()}
    return network_from_layers(layers, data.sample_shape, given)


@final
class Death(Event):
    """SIGKILL to the agent's own process, after this many of the seconds that its last step took."""

    def __init__(self, agent: int, at_step: int, after: float) -> None:
        self.agent, self.at_step, self.after = agent, at_step, after
        self.began = 0.0

    def before_step(self, moment: Moment) -> None:
        began, self.began = self.began, time.perf_counter()
        if moment.rank == self.agent and moment.step == self.at_step:
            took = self.began - began
            threading.Thread(target=self._die, args=(self.after * took,), daemon=True).start()

    def _die(self, seconds: float) -> None:
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Survivor:
    """How it went with an agent that was left: its parameters when its group was formed again, and later."""

    agreed: RestartPoint
    before: dict[str, Array]
    after: dict[str, Array]
    passes: bytes


def live(rank: int, experiment: d5.Experiment, data: Dataset, group: Group, pipe: Connection) -> None:
    """Train until a peer is lost; then what comes by the pipe: a group, and how many steps to do, or none."""
    agent = TrainingAgent(rank, experiment, "run", "node", Rows())
    agent.build(data, share_of(experiment, data, rank))
    agent.join(group)
    pipe.send("joined")
    pipe.send(agent.train(10_000))
    while (given := pipe.recv()) is not None:
        again, topology, more = given
        agreed = agent.rejoin(again, topology)
        before = agent.parameters()
        outcome = agent.train(more)
        assert outcome.completed, outcome
        passes = agent.executor.random_state().tobytes()
        pipe.send(Survivor(agreed, before, agent.parameters(), passes))
    agent.leave()


def killed(experiment: d5.Experiment, data: Dataset, deaths: list[Death], more: int) -> dict[int, Survivor]:
    """Train until the deaths, then that many steps without their replicas; who is left, by rank."""
    mesh = experiment.mesh
    assert mesh is not None and experiment.topology is not None
    count, rendezvous = mesh.agents, Rendezvous()
    address, name = rendezvous.address, f"mesh {id(rendezvous)}"
    groups = [Group(name, 0, rank, count, address, timeout_seconds=30.0) for rank in range(count)]
    dead = {death.agent for death in deaths}
    lost = {rank // mesh.agents_per_replica for rank in dead}
    left = [rank for rank in range(count) if rank // mesh.agents_per_replica not in lost]
    topology = d5.topologies.Complete(mesh.replicas - len(lost))
    try:
        with processes(count, live, [experiment] * count, [data] * count, groups) as members:
            pipes = {rank: members[rank][1] for rank in range(count) if rank not in dead}
            for pipe in pipes.values():
                assert said(pipe) == "joined"
            for pipe in pipes.values():
                assert said(pipe).status == "peer_lost"
            for rank, pipe in pipes.items():
                if rank not in left:
                    pipe.send(None)
            for index, rank in enumerate(left):
                again = Group(name, 1, index, len(left), address, timeout_seconds=30.0)
                pipes[rank].send((again, topology, more))
            found = {rank: said(pipes[rank]) for rank in left}
            for rank in left:
                pipes[rank].send(None)
            return found
    finally:
        rendezvous.close()


def without(experiment: d5.Experiment) -> d5.Experiment:
    """The same training by agents that have the whole network."""
    mesh = experiment.mesh
    assert mesh is not None
    return replace(experiment, mesh=None, agents=mesh.replicas, events=())
