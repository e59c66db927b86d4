"""The parameter servers that a run gets: what the experiment says, then what its optimizers say"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from d5ray.checks import check_kind
from d5ray.distributed.compression.compressor import Compressor
from d5ray.distributed.optimizers.exchange import ExchangeVia
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.parameter_server.consistency import Consistency, Synchronous
from d5ray.distributed.parameter_server.requests import Array
from d5ray.distributed.parameter_server.server_rules import ServerRule
from d5ray.distributed.parameter_server.servers import Servers
from d5ray.distributed.parameter_server.shard import Shard, Upstream
from d5ray.errors import ConfigurationError
from d5ray.training.batches.epochs import Epochs
from d5ray.training.optimizers.optimizer import Optimizer


@dataclass(frozen=True)
class ResolvedServers:
    """The resolved servers of an experiment whose distributed and base optimizer are known.

    compressors  those that are attributes of the distributed optimizer, which agents may compress with
    """

    servers: Servers
    consistency: Consistency
    rule: ServerRule
    base: Optimizer
    compressors: tuple[Compressor, ...] = ()

    @classmethod
    def of(cls, servers: Servers, distributed: DistributedOptimizer, base: Optimizer) -> "ResolvedServers":
        """The experiment's own settings first, then the optimizer's."""
        resolved = cls(
            servers,
            servers.consistency or distributed.consistency,
            servers.rule or distributed.server_rule,
            servers.optimizer or distributed.server_optimizer or base,
            _compressors(distributed),
        )
        resolved.rule.check(resolved.base)
        drops = isinstance(resolved.consistency, Synchronous) and resolved.consistency.backups > 0
        if resolved.rule.replies and drops:
            raise ConfigurationError(
                f"{resolved.rule!r} replies to every push, but {resolved.consistency!r} drops late ones: "
                "take backups=0"
            )
        if servers.groups > 1 and (resolved.rule.replies or resolved.rule.keeps_reads):
            raise ConfigurationError(
                f"{resolved.rule!r} answers every agent by itself, but a server of a group sends on the mean "
                "of its agents' pushes: take groups=1"
            )
        return resolved

    def among(self, agents: int) -> "ResolvedServers":
        """The servers for another number of agents: a rule may depend on how many push."""
        return dataclasses.replace(self, rule=self.rule.among(len(self.members(None, agents))))

    def check(self, agents: int) -> None:
        """Raise `ConfigurationError` unless the servers fit this number of agents."""
        self.servers.check(agents)
        if self.base.tensorwise or (self.base.whole and self.servers.shards > 1):
            needs = "the model's tensors" if self.base.tensorwise else "all parameters at once"
            raise ConfigurationError(
                f"{self.base!r} must see {needs}, which {self.servers.shards} shards of parameter servers do "
                "not: choose an element-wise rule such as SGD or Adam, or agents without servers"
            )
        self.consistency.check(len(self.members(None, agents)))

    def timed(self, epochs: Epochs, agents: int) -> "ResolvedServers":
        """The servers for a run with these epochs: schedules count the run's."""
        waits = isinstance(self.consistency, Synchronous)
        updates = 1 if waits else len(self.members(None, agents))
        return dataclasses.replace(self, base=self.base.timed(epochs, updates))

    @property
    def within(self) -> Consistency:
        """The consistency of a group's server: it sends on one push of every agent at a time."""
        return Synchronous()

    def shard(
        self, x: Array, group: int | None, members: Sequence[int], upstream: Upstream | None = None
    ) -> Shard:
        """A shard of the root, or of a group, with the parameters x (n,); upstream: see `Shard`."""
        if group is None:
            return Shard(x, self.base, self.rule, self.consistency, members)
        return Shard(x, self.base, self.rule, self.within, members, upstream or _nowhere)

    def members(self, group: int | None, agents: int) -> range:
        """The ranks that speak to a shard: a group's agents; at the root all agents, or else the groups."""
        if group is not None:
            return self.servers.members(group, agents)
        return range(agents if self.servers.groups == 1 else self.servers.groups)

    def group_of(self, rank: int, agents: int) -> int | None:
        """The group of an agent; None where all speak to the root."""
        return None if self.servers.groups == 1 else self.servers.group_of(rank, agents)

    def shard_name(self, shard: int, group: int | None = None) -> str:
        """The name of a shard for people."""
        if shard >= self.servers.shards:
            return "ParameterServer(copy of shard=0)"
        return f"ParameterServer({'' if group is None else f'group={group}, '}shard={shard})"


def resolved(
    servers: Servers | None, distributed: DistributedOptimizer, base: Optimizer, agents: int
) -> ResolvedServers | None:
    """The resolved servers of an experiment with this many replicas; None where its agents need none.

    Raises `ConfigurationError` for servers that do not fit, or that nobody needs.
    """
    check_kind("servers", servers, Servers | None, "Servers(shards=2) or the like, or None")
    if ExchangeVia.SERVERS in distributed.exchange:
        found = ResolvedServers.of(servers or Servers(), distributed, base).among(agents)
        found.check(agents)
        return found
    if servers is not None:
        raise ConfigurationError(
            f"servers is {servers!r}, but {distributed!r} uses no parameter server: leave servers "
            "out, or take an optimizer such as ASGD() (one of your own says exchange = "
            "d5.ExchangeVia.SERVERS)"
        )
    return None


def _nowhere(mean: Array, counts: float, number: int) -> None:
    """The upstream of a copy: what comes of a round is told to it."""


def _compressors(distributed: DistributedOptimizer) -> tuple[Compressor, ...]:
    held = {k: v for kind in reversed(type(distributed).__mro__) for k, v in vars(kind).items()}
    held |= vars(distributed)
    return tuple(value for value in held.values() if isinstance(value, Compressor))
