"""Contenders that push and pull: d5ray's parameter server, Ray's documented one, snapshots in Ray's store"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from benchmarks.server_speed.job import ServerUpdates, check_parameters, rates
from benchmarks.server_speed.service import service_times
from benchmarks.sizes import elements_of
from d5ray.distributed.parameter_server.consistency import Asynchronous
from d5ray.distributed.parameter_server.resolved_servers import ResolvedServers
from d5ray.distributed.parameter_server.server_rules import Descend
from d5ray.distributed.parameter_server.servers import Servers
from d5ray.distributed.wire.secret import Secret
from d5ray.kits.laboratory.comparisons import processes
from d5ray.kits.laboratory.comparisons.contenders import Contender, RankSeries
from d5ray.kits.laboratory.metrics.rates import SERVICE_TIME
from d5ray.training.optimizers.gradient_descent import SGD

if TYPE_CHECKING:
    from benchmarks.server_speed.pushing_agents import Pushed

HASHED_AS = "d5ray.recipes.pushers"  # where the first runs knew it

Turn = Callable[[float], "list[Pushed]"]
PART_SECONDS = 600.0  # for all of a group's updates of one size
WARM_UP = 0.0  # seconds: the fewest updates
SERVICE_SECONDS = 300.0


@final
@dataclass(frozen=True)
class ThroughServers(Contender[ServerUpdates]):
    """d5ray's `ParameterServer`, every shard in an actor, and agents that speak to them past Ray."""

    processes: int
    shards: int = 2
    word = "d5ray"
    HASHED_AS = "ThroughD5ray"

    def measure(self, job: ServerUpdates, folder: Path) -> list[RankSeries]:
        from benchmarks.server_speed.pushing_agents import LEARNING_RATE, Pusher  # noqa: PLC0415 - as above
        from d5ray.actors.remote import spawned  # noqa: PLC0415 - imports Ray
        from d5ray.actors.servers.parameter_server import ParameterServer  # noqa: PLC0415 - as above

        resolved = ResolvedServers(Servers(shards=self.shards), Asynchronous(), Descend(), SGD(LEARNING_RATE))
        given = [(shard, resolved, self.processes) for shard in range(self.shards)]
        with (
            spawned(ParameterServer, given, cpus=0.0) as servers,
            spawned(Pusher, [(rank,) for rank in range(self.processes)]) as agents,
        ):
            return [row for size in job.sizes for row in self._at(job, size, servers, agents)]

    def _at(self, job: ServerUpdates, size: str, servers: list[Any], agents: list[Any]) -> list[RankSeries]:
        from benchmarks.server_speed.pushing_agents import LEARNING_RATE  # noqa: PLC0415 - as above
        from d5ray.actors.calls import CALL_SECONDS, get  # noqa: PLC0415 - imports Ray
        from d5ray.actors.cluster.placement import place_of  # noqa: PLC0415 - imports Ray
        from d5ray.actors.remote import SETUP_SECONDS  # noqa: PLC0415 - as above

        secret, elements = Secret.new(), elements_of(size)
        asking = [actor.__ray_call__.remote(place_of) for actor in (*servers, *agents)]
        places = get(asking, SETUP_SECONDS, "answer")
        serving = [
            server.serve.remote(secret, place.node, place.address, PART_SECONDS)
            for server, place in zip(servers, places, strict=False)
        ]
        addresses = get(serving, CALL_SECONDS, "serve its shard")
        joining = [
            agent.join.remote(addresses, place.node, secret, elements)
            for agent, place in zip(agents, places[self.shards :], strict=True)
        ]
        get(joining, SETUP_SECONDS, "join the server")
        done = [
            get([agent.update.remote(seconds) for agent in agents], PART_SECONDS, "push and pull")
            for seconds in (WARM_UP, job.seconds)
        ]
        found = get([agent.leave.remote() for agent in agents], CALL_SECONDS, "leave the server")
        get([server.close.remote() for server in servers], CALL_SECONDS, "end its server")
        check_parameters(self.name, found, done, LEARNING_RATE)
        return rates(size, done[-1])


@final
@dataclass(frozen=True)
class AsDocumented(Contender[ServerUpdates]):
    """The parameter server of Ray's documentation: the driver passes every gradient and every weight on."""

    processes: int
    word = "ray docs"

    def measure(self, job: ServerUpdates, folder: Path) -> list[RankSeries]:
        from benchmarks.server_speed import pushing_agents  # noqa: PLC0415 - imports Ray
        from d5ray.actors.remote import spawned  # noqa: PLC0415 - as above

        with (
            spawned(pushing_agents.DocumentedServer, [()], cpus=0.0) as (server,),
            spawned(pushing_agents.DocumentedWorker, [(rank,) for rank in range(self.processes)]) as workers,
        ):
            turn = partial(pushing_agents.drive, server, workers)
            return measured(self.name, job, server, workers, turn)


@final
@dataclass(frozen=True)
class ThroughSnapshots(Contender[ServerUpdates]):
    """An actor that puts every version into Ray's object store once; agents loop, and pull by reference."""

    processes: int
    word = "ray snapshots"

    def measure(self, job: ServerUpdates, folder: Path) -> list[RankSeries]:
        from benchmarks.server_speed import pushing_agents  # noqa: PLC0415 - imports Ray
        from d5ray.actors.calls import get  # noqa: PLC0415 - as above
        from d5ray.actors.remote import spawned  # noqa: PLC0415 - as above

        with (
            spawned(pushing_agents.SnapshotServer, [()], cpus=0.0) as (server,),
            spawned(pushing_agents.SnapshotAgent, [(rank,) for rank in range(self.processes)]) as agents,
        ):

            def turn(seconds: float) -> "list[Pushed]":
                updating = [agent.update.remote(server, seconds) for agent in agents]
                return get(updating, PART_SECONDS, "push and pull")

            return measured(self.name, job, server, agents, turn)


@final
@dataclass(frozen=True)
class ServiceAndUpdate(Contender[ServerUpdates]):
    """Pushes to a shard of this very process, and the bare update x ← x − η g, in turn."""

    processes: int = field(default=1, init=False)
    word = "one push"

    def measure(self, job: ServerUpdates, folder: Path) -> list[RankSeries]:
        work = partial(service_times, job.sizes, job.seconds)
        (found,) = processes.measured(work, folder, 1, SERVICE_SECONDS)
        return [
            RankSeries.of(times, SERVICE_TIME, f"{side} {size}")
            for size, both in found.items()
            for side, times in both.items()
        ]


def measured(name: str, job: ServerUpdates, server: Any, agents: list[Any], turn: Turn) -> list[RankSeries]:
    """The rates of a server in an actor, size by size. turn(seconds): lets the agents push and pull."""
    from benchmarks.server_speed.pushing_agents import LEARNING_RATE  # noqa: PLC0415 - as above
    from d5ray.actors.calls import CALL_SECONDS, get  # noqa: PLC0415 - imports Ray
    from d5ray.actors.remote import SETUP_SECONDS  # noqa: PLC0415 - as above

    found = []
    for size in job.sizes:
        beginning = [actor.begin.remote(elements_of(size)) for actor in (server, *agents)]
        get(beginning, SETUP_SECONDS, "make its arrays")
        done = [turn(seconds) for seconds in (WARM_UP, job.seconds)]
        weights = get([server.get_weights.remote()], CALL_SECONDS, "give its weights")[0]
        check_parameters(name, [(float(weights.min()), float(weights.max()))], done, LEARNING_RATE)
        found += rates(size, done[-1])
    return found
