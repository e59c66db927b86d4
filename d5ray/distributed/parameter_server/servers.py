"""The parameter servers of an experiment, as data: number of shards, consistency, rule"""

from dataclasses import dataclass, field
from typing import final

from d5ray.checks import MOST_RANKS, KnownKeywords, check_count, check_kind, check_rate
from d5ray.distributed.parameter_server.consistency import Consistency
from d5ray.distributed.parameter_server.server_rules import ServerRule
from d5ray.errors import ConfigurationError
from d5ray.identity.fields import LATER
from d5ray.training.optimizers.optimizer import Optimizer


@final
@dataclass(frozen=True)
class Servers(KnownKeywords):
    """Parameters are divided over `shards` actors, into parts of equal size in bytes.

    consistency  when pushes are applied and pulls may read; None: that of the distributed optimizer
    rule         how a push changes the parameters; None: that of the distributed optimizer
    optimizer    level 2, at the server; None: that of the distributed optimizer, or else the experiment's
    groups       with more than one, every group of agents has its own shards, which forward the mean of the
                 group's pushes to the root and take the parameters from there (a hierarchical server:
                 Gupta et al., arXiv:1509.04210)
    snapshot_seconds  time between snapshots of a shard, from which it is restored when its process dies
    replicas     1: every push is also in the next server's process before it is acknowledged, and a shard
                 that dies is restored from there without loss (chain replication: van Renesse & Schneider,
                 OSDI 2004); 0: pushes since the last snapshot are lost, and counted in an event
    """

    shards: int = 1
    consistency: Consistency | None = None
    rule: ServerRule | None = None
    optimizer: Optimizer | None = None
    groups: int = 1
    snapshot_seconds: float = 1.0
    replicas: int = field(default=0, metadata=LATER)

    def __post_init__(self) -> None:
        check_count("shards", self.shards, high=MOST_RANKS)
        check_count("groups", self.groups, high=MOST_RANKS)
        for name, kind, example in (
            ("consistency", Consistency, "Asynchronous()"),
            ("rule", ServerRule, "StalenessAware()"),
            ("optimizer", Optimizer, "SGD(0.1)"),
        ):
            check_kind(name, getattr(self, name), kind | None, f"a {kind.__name__} such as {example}")
        check_rate("snapshot_seconds", self.snapshot_seconds)
        check_count("replicas", self.replicas, 0, 1)

    def check(self, agents: int) -> None:
        """Raise `ConfigurationError` unless the servers fit this number of agents."""
        if self.groups > agents:
            raise ConfigurationError(
                f"{self.groups} groups of servers for {agents} agents leave a server without agents: take at "
                f"most {agents} groups"
            )

    def check_parameters(self, elements: int) -> None:
        """Raise `ConfigurationError` unless every shard has a parameter."""
        if self.shards > elements:
            raise ConfigurationError(
                f"{self.shards} shards for a model of {elements} parameters leave shards empty: take at most "
                f"{elements} shards"
            )

    def members(self, group: int, agents: int) -> range:
        """The ranks of a group: in order, of sizes that differ by one at most."""
        return range(agents * group // self.groups, agents * (group + 1) // self.groups)

    def group_of(self, rank: int, agents: int) -> int:
        """The group of an agent."""
        return next(group for group in range(self.groups) if rank in self.members(group, agents))
