"""The parameter servers of an experiment, as data: how many shards, how consistent, by which rule"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, final

from d5ray.checks import MOST_RANKS, check_count, check_rate
from d5ray.distributed.compression.compressor import Compressor
from d5ray.distributed.parameter_server.consistency import Consistency, Synchronous
from d5ray.distributed.parameter_server.server_rules import ServerRule
from d5ray.errors import ConfigurationError
from d5ray.training.batches.epochs import Epochs
from d5ray.training.optimizers.optimizer import Optimizer

if TYPE_CHECKING:
    from d5ray.distributed.optimizers.optimizer import DistributedOptimizer


@final
@dataclass(frozen=True)
class Servers:
    """Parameters live on `shards` actors, cut evenly by bytes.

    consistency  when pushes are applied and pulls may read; None: what the distributed optimizer says
    rule         how a push changes the parameters; None: what the distributed optimizer says
    optimizer    level 2, at the server; None: what the distributed optimizer says, else the experiment's
    groups       with more than one, every group of agents has shards of its own, which send the mean of the
                 group's pushes on to the root and take the parameters from there (a hierarchical server:
                 Gupta et al., arXiv:1509.04210)
    snapshot_seconds  how often a shard's state is kept, from which it is restored when its process dies
    """

    shards: int = 1
    consistency: Consistency | None = None
    rule: ServerRule | None = None
    optimizer: Optimizer | None = None
    groups: int = 1
    snapshot_seconds: float = 1.0

    def __post_init__(self) -> None:
        check_count("shards", self.shards, high=MOST_RANKS)
        check_count("groups", self.groups, high=MOST_RANKS)
        for name, kind, example in (
            ("consistency", Consistency, "Asynchronous()"),
            ("rule", ServerRule, "StalenessAware()"),
            ("optimizer", Optimizer, "SGD(0.1)"),
        ):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise ConfigurationError(
                    f"{name} is {value!r}: it must be a {kind.__name__} such as {example}"
                )
        check_rate("snapshot_seconds", self.snapshot_seconds)

    def check(self, agents: int) -> None:
        """Raise `ConfigurationError` unless it fits so many agents."""
        if self.groups > agents:
            raise ConfigurationError(
                f"{self.groups} groups of servers for {agents} agents leave a server without agents: take at "
                f"most {agents} groups"
            )

    def check_parameters(self, elements: int) -> None:
        """Raise `ConfigurationError` unless every shard gets a parameter."""
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


@dataclass(frozen=True)
class Settled:
    """What the servers of an experiment come to, its distributed and its base optimizer being known.

    compressors  those that are attributes of the distributed optimizer, which agents may compress with
    """

    servers: Servers
    consistency: Consistency
    rule: ServerRule
    base: Optimizer
    compressors: tuple[Compressor, ...] = ()

    @classmethod
    def of(cls, servers: Servers, distributed: "DistributedOptimizer", base: Optimizer) -> "Settled":
        """The experiment's own wishes first, then the optimizer's."""
        settled = cls(
            servers,
            servers.consistency or distributed.consistency,
            servers.rule or distributed.server_rule,
            servers.optimizer or distributed.server_optimizer or base,
            _compressors(distributed),
        )
        settled.rule.check(settled.base)
        drops = isinstance(settled.consistency, Synchronous) and settled.consistency.backups > 0
        if settled.rule.replies and drops:
            raise ConfigurationError(
                f"{settled.rule!r} replies to every push, but {settled.consistency!r} drops late ones: take "
                "backups=0"
            )
        if servers.groups > 1 and (settled.rule.replies or settled.rule.keeps_reads):
            raise ConfigurationError(
                f"{settled.rule!r} answers every agent by itself, but a server of a group sends on the mean "
                "of its agents' pushes: take groups=1"
            )
        return settled

    def among(self, agents: int) -> "Settled":
        """The same for that many agents: a rule may depend on how many push."""
        return dataclasses.replace(self, rule=self.rule.among(len(self.members(None, agents))))

    def check(self, agents: int) -> None:
        """Raise `ConfigurationError` unless it fits so many agents."""
        self.servers.check(agents)
        if self.base.tensorwise or (self.base.whole and self.servers.shards > 1):
            needs = "the model's tensors" if self.base.tensorwise else "all parameters at once"
            raise ConfigurationError(
                f"{self.base!r} must see {needs}, which {self.servers.shards} shards of parameter servers do "
                "not: choose an element-wise rule such as SGD or Adam, or agents without servers"
            )
        self.consistency.check(len(self.members(None, agents)))

    def timed(self, epochs: Epochs, agents: int) -> "Settled":
        """The same for a run with these epochs: schedules count the run's."""
        waits = isinstance(self.consistency, Synchronous)
        updates = 1 if waits else len(self.members(None, agents))
        return dataclasses.replace(self, base=self.base.timed(epochs, updates))

    @property
    def within(self) -> Consistency:
        """Of the server of a group: it sends on one push of every agent at a time."""
        return Synchronous()

    def members(self, group: int | None, agents: int) -> range:
        """Who speaks to a shard: of a group its agents; of the root all agents, or else the groups."""
        if group is not None:
            return self.servers.members(group, agents)
        return range(agents if self.servers.groups == 1 else self.servers.groups)

    def group_of(self, rank: int, agents: int) -> int | None:
        """The group of an agent; None where all speak to the root."""
        return None if self.servers.groups == 1 else self.servers.group_of(rank, agents)

    def shard_name(self, shard: int, group: int | None = None) -> str:
        """As people see it."""
        return f"ParameterServer({'' if group is None else f'group={group}, '}shard={shard})"


def _compressors(distributed: "DistributedOptimizer") -> tuple[Compressor, ...]:
    held = {k: v for kind in reversed(type(distributed).__mro__) for k, v in vars(kind).items()}
    held |= vars(distributed)
    return tuple(value for value in held.values() if isinstance(value, Compressor))


def bounds(elements: int, shards: int) -> Sequence[slice]:
    """The slices of the flat parameters (n,) that the shards have, in order."""
    edges = [elements * shard // shards for shard in range(shards + 1)]
    return [slice(low, high) for low, high in pairwise(edges)]
