"""What a run does when its agents die, hang, or become more or fewer, as data"""

from dataclasses import dataclass, field
from typing import ClassVar, Final, final

from d5ray.checks import KnownKeywords, check_choice, check_count, check_number
from d5ray.distributed.group.late_agents import Late, check_late
from d5ray.identity.fields import LATER

ORPHANS: Final = ("left_out", "taken_over")
KEEP_BATCH: Final = ("agent", "global")
SCALE_RATE: Final = ("none", "linear", "sqrt")


@final
@dataclass(frozen=True)
class FaultPolicy(KnownKeywords):
    """What a run does about agents and servers that die or hang, and when they count as dead.

    on_failure     when an agent dies: 'stop' the run, 'continue' without it, 'restart' it while all wait, or
                   'replace' it: the others train on while another starts
    min_agents     with fewer agents the run ends; if replacements are starting, the others wait for them
    max_failures   deaths that a run survives, of agents and servers together; -1: any number
    stuck_seconds  an agent without progress for so long while others wait for it counts as dead, and so does
                   a server that does not answer; 0: never
    heartbeat_seconds  an agent without a heartbeat for so long is reported in an event
    orphans        with 'continue' the samples of a dead agent: 'left_out', or 'taken_over' by the others: as
                   soon as they form a new group, or from the next epoch on if they need none

    Wrong values raise `ConfigurationError`. The faults that are to happen are no policy but a plan, `Faults`.
    """

    policies: ClassVar = ("stop", "continue", "restart", "replace")
    on_failure: str = "stop"
    min_agents: int = field(default=1, metadata=LATER)
    max_failures: int = field(default=-1, metadata=LATER)
    stuck_seconds: float = field(default=60.0, metadata=LATER)
    heartbeat_seconds: float = field(default=5.0, metadata=LATER)
    orphans: str = "left_out"

    def __post_init__(self) -> None:
        check_choice("on_failure", self.on_failure, self.policies)
        check_choice("orphans", self.orphans, ORPHANS)
        check_count("min_agents", self.min_agents)
        check_count("max_failures", self.max_failures, -1)
        check_number("stuck_seconds", self.stuck_seconds, low=0.0, low_included=True)
        check_number("heartbeat_seconds", self.heartbeat_seconds, low=0.1, low_included=True)


@final
@dataclass(frozen=True)
class Elasticity(KnownKeywords):
    """Agents that join a run later, and its batch and learning rate when their number changes.

    late           agents that join later, such as `(Late(agent=3, seconds=5),)`
    keep_batch     when the number of agents changes: the batch of an 'agent' stays, or the 'global' batch, of
                   which fewer agents take larger shares
    scale_rate     learning rate at a global batch B, planned B₀: 'none' (η), 'linear' (η B / B₀,
                   Goyal et al., arXiv:1706.02677) or 'sqrt' (η √(B / B₀), Krizhevsky, arXiv:1404.5997)

    Wrong values raise `ConfigurationError`.
    """

    late: tuple[Late, ...] | Late = ()
    keep_batch: str = field(default="agent", metadata=LATER)
    scale_rate: str = field(default="none", metadata=LATER)

    def __post_init__(self) -> None:
        object.__setattr__(self, "late", check_late(self.late))
        check_choice("keep_batch", self.keep_batch, KEEP_BATCH)
        check_choice("scale_rate", self.scale_rate, SCALE_RATE)
