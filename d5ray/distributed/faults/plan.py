"""A plan of faults: `Faults().kill(agent=1, at_step=3).stop(agent=2, at_step=5, seconds=10)`"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, final

from d5ray.checks import check_items, check_kind
from d5ray.distributed.faults.fault import ALONE, FILLS, KINDS, NUMBERED, Fault
from d5ray.distributed.parameter_server.resolved_servers import ResolvedServers
from d5ray.errors import ConfigurationError, nearest

BEGINS: Final = re.compile(r"^(d5\.|d5ray\.)?Faults\(\)\.?")
BENEATH: Final = {"delay": "delay 100ms", "lose": "loss 5%"}  # what `tc` calls them
EXAMPLE: Final = "kill(agent=1, at_step=3).stop(agent=2, at_step=5, seconds=10)"


@final
@dataclass(frozen=True)
class Faults:
    """A plan of faults to inject into a run, on real processes and in a simulation.

    A plan is immutable: every method returns a new plan with one more fault.

        d5.launch(experiment, faults=d5.Faults().kill(agent=1, at_step=3).kill("aggregator", at_seconds=2))

    Target: `agent=1`, `server=0`, or by name 'aggregator', 'driver', 'raylet' (this machine's), 'gcs' or
    'head' (both of these). Time, one of: at_step, just before this step of the agent, counted from 0;
    at_seconds after the beginning of the training; during, 'evaluation', 'checkpoint' or 'collective' of an
    agent, with at_step at that step or later, 'recovery' of the run from another fault, or its 'closing'.
    Every fault happens once, and is recorded as an event `fault` of the run, with the plan.
    """

    planned: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        listed = check_items("planned", self.planned, "the faults of a plan")
        for fault in listed:
            check_kind("planned", fault, Fault, f"faults such as those of Faults().{EXAMPLE}")
        object.__setattr__(self, "planned", listed)

    # -- processes -------------------------------------------------------------------------------------

    def kill(
        self,
        victim: str | None = None,
        *,
        agent: int | None = None,
        server: int | None = None,
        at_step: int | None = None,
        at_seconds: float | None = None,
        during: str | None = None,
    ) -> "Faults":
        """Send SIGKILL to a process: it dies at once, without a message."""
        return self._with(Fault("kill", *_whom(victim, agent, server), at_step, at_seconds, during))

    def terminate(
        self,
        victim: str | None = None,
        *,
        agent: int | None = None,
        server: int | None = None,
        at_step: int | None = None,
        at_seconds: float | None = None,
        during: str | None = None,
    ) -> "Faults":
        """Send SIGTERM to a process, as when a machine is shut down."""
        return self._with(Fault("terminate", *_whom(victim, agent, server), at_step, at_seconds, during))

    def stop(
        self,
        victim: str | None = None,
        *,
        agent: int | None = None,
        server: int | None = None,
        at_step: int | None = None,
        at_seconds: float | None = None,
        during: str | None = None,
        seconds: float | None = None,
    ) -> "Faults":
        """Send SIGSTOP to a process, and SIGCONT after these seconds; without them it hangs for ever."""
        return self._with(Fault("stop", *_whom(victim, agent, server), at_step, at_seconds, during, seconds))

    # -- links and disk --------------------------------------------------------------------------------

    def partition(
        self, agents: tuple[int, ...], *, at_seconds: float, seconds: float | None = None
    ) -> "Faults":
        """Partition the network between these agents and all others, servers too; messages arrive late.

        In a real run the hosts of these agents are cut off from all other hosts of the Ray cluster, with
        everything on them: it needs a cluster of several hosts, whose routes Ray may change (`ip` and
        CAP_NET_ADMIN), and the agents must not share a host with others. Without `seconds` it lasts until
        the run ends.
        """
        return self._with(Fault("partition", "", _ranks(agents), at_seconds=at_seconds, seconds=seconds))

    def delay(
        self,
        by_seconds: float,
        *,
        agents: tuple[int, ...] = (),
        at_seconds: float = 0.0,
        seconds: float | None = None,
    ) -> "Faults":
        """Delay messages to and from these agents, or all, by these seconds. In a simulation only.

        For a real run use `tc qdisc add dev eth0 root netem delay 100ms` on your own hosts.
        """
        return self._with(
            Fault("delay", "", _ranks(agents), at_seconds=at_seconds, seconds=seconds, amount=by_seconds)
        )

    def lose(
        self,
        share: float,
        *,
        agents: tuple[int, ...] = (),
        at_seconds: float = 0.0,
        seconds: float | None = None,
    ) -> "Faults":
        """Lose this share of the messages to and from these agents, or all; they are resent after 0.2 s.

        This models TCP. In a simulation only. For a real run use
        `tc qdisc add dev eth0 root netem loss 5%` on your own hosts.
        """
        return self._with(
            Fault("lose", "", _ranks(agents), at_seconds=at_seconds, seconds=seconds, amount=share)
        )

    def fill_disk(self, *, at_seconds: float, seconds: float | None = None) -> "Faults":
        """Fill the file system of the runs up to the last byte; after these seconds it has room again.

        In real runs only, and only if the runs' folder is a file system of its own of at most 1 GB.
        """
        return self._with(Fault("fill_disk", at_seconds=at_seconds, seconds=seconds))

    def fill_shared_memory(self, *, at_seconds: float, seconds: float | None = None) -> "Faults":
        """Fill /dev/shm up to the last page; after these seconds it has room again.

        In real runs with an embedded Ray only, and only if /dev/shm is a file system of at most 2 GB that no
        other processes see.
        """
        return self._with(Fault("fill_shared_memory", at_seconds=at_seconds, seconds=seconds))

    # -- as data ---------------------------------------------------------------------------------------

    @classmethod
    def parse(cls, text: str) -> "Faults":
        """The plan that a text describes; the text is not executed. Raises `ConfigurationError`.

        >>> Faults.parse("kill(agent=1, at_step=3).stop('aggregator', at_seconds=2, seconds=1)")
        Faults().kill(agent=1, at_step=3).stop('aggregator', at_seconds=2, seconds=1)
        """
        check_kind("faults", text, str, f"a text such as {EXAMPLE!r}")
        plan, chain = cls(), BEGINS.sub("", text.strip())
        try:
            if not text.strip():
                raise ValueError("it is empty")
            for name, given, named in _calls(ast.parse(chain, mode="eval").body) if chain else ():
                if name not in KINDS:
                    raise ConfigurationError(f"there is no fault {name!r}: {nearest(name, KINDS)}")
                plan = getattr(plan, name)(*given, **named)
        except (SyntaxError, TypeError, ValueError, RecursionError) as error:
            raise ConfigurationError(
                f"the faults {text!r} cannot be read ({error}): write them as {EXAMPLE}"
            ) from error
        return plan

    def __repr__(self) -> str:
        return ".".join(["Faults()", *map(str, self.planned)])

    def __iter__(self) -> Iterator[Fault]:
        return iter(self.planned)

    def __len__(self) -> int:
        return len(self.planned)

    def __add__(self, other: "Faults") -> "Faults":
        return replace(self, planned=self.planned + other.planned)

    def of_agent(self, rank: int) -> tuple[Fault, ...]:
        """The faults that this agent's own process executes, at a step or during a moment of its own."""
        return tuple(fault for fault in self.planned if _is_own(fault) and fault.numbers == (rank,))

    @property
    def from_outside(self) -> tuple[Fault, ...]:
        """The faults that another process executes, at a time of the run."""
        return tuple(fault for fault in self.planned if not _is_own(fault))

    # -- what fits -------------------------------------------------------------------------------------

    def check(self, agents: int, resolved: ResolvedServers | None) -> None:
        """Raise `ConfigurationError` for an agent or server that does not exist, or an empty partition."""
        servers = 0
        if resolved is not None:
            shards, groups = resolved.servers.shards, resolved.servers.groups
            servers = shards * (1 + groups if groups > 1 else 1)
        there = {"agent": agents, "server": servers, "": agents}
        for fault in self.planned:
            count, what = there.get(fault.victim, 0), fault.victim or "agent"
            for number in fault.numbers:
                if number >= count:
                    known = f"its {what}s are 0 to {count - 1}" if count else f"it has no {what}s"
                    raise ConfigurationError(
                        f"{fault} names the {what} {number}, which the experiment does not have: {known}"
                    )
            if fault.kind == "partition" and len(set(fault.numbers)) in (0, agents) and not servers:
                raise ConfigurationError(
                    f"{fault} cuts nothing off: name some of the agents 0 to {agents - 1}, not all"
                )

    def check_steps(self, steps: int) -> None:
        """Raise `ConfigurationError` for a step beyond a training of this many steps."""
        for fault in self.planned:
            if fault.at_step is not None and fault.at_step >= steps:
                raise ConfigurationError(
                    f"{fault} is planned at step {fault.at_step}, the training has the steps 0 to "
                    f"{steps - 1}: give an earlier one, or more epochs"
                )

    def check_real(self) -> None:
        """Raise `ConfigurationError` for faults that exist only in a simulation."""
        for fault in self.planned:
            if fault.kind in BENEATH:
                raise ConfigurationError(
                    f"{fault}: a real run leaves the queues of the hosts' network devices to their "
                    "administrator: simulate the experiment, or do it beneath the run, on each host and as "
                    f"root, with `tc qdisc add dev eth0 root netem {BENEATH[fault.kind]}`"
                )

    def check_simulated(self) -> None:
        """Raise `ConfigurationError` for faults that a simulation, which is one process, cannot have."""
        for fault in self.planned:
            if fault.kind in FILLS or fault.victim in ALONE:
                raise ConfigurationError(
                    f"{fault}: a simulation has agents, servers and links alone: launch the experiment"
                )
            if fault.during is not None:
                raise ConfigurationError(
                    f"{fault}: in a simulation nothing but steps and messages takes time: give at_step or "
                    "at_seconds"
                )
            if fault.victim == "server" and fault.kind == "stop":
                raise ConfigurationError(f"{fault}: in a simulation a server can be killed alone: launch it")

    def _with(self, fault: Fault) -> "Faults":
        return replace(self, planned=(*self.planned, fault))


def _is_own(fault: Fault) -> bool:
    return (
        fault.victim == "agent" and fault.at_seconds is None and fault.during not in ("recovery", "closing")
    )


def _whom(victim: Any, agent: Any, server: Any) -> tuple[str, tuple[int, ...]]:
    """The victim and its number; `ConfigurationError` unless one is named."""
    numbered = {
        name: number for name, number in zip(NUMBERED, (agent, server), strict=True) if number is not None
    }
    if len(numbered) + (victim is not None) != 1:
        named = [repr(victim)] * (victim is not None) + [f"{name}={n}" for name, n in numbered.items()]
        raise ConfigurationError(
            f"a fault happens to one, here to {' and '.join(named) or 'nobody'}: give agent=1, server=0, or "
            f"one of {', '.join(map(repr, ALONE))}"
        )
    for name, number in numbered.items():
        return name, (number,)
    if victim not in ALONE:
        near = nearest(victim, ALONE) if isinstance(victim, str) else ""
        raise ConfigurationError(
            f"victim is {victim!r}: give agent=1, server=0, or one of {', '.join(map(repr, ALONE))}; {near}"
        )
    return str(victim), ()


def _ranks(agents: object) -> tuple[int, ...]:
    return tuple(check_items("agents", agents, "a tuple of ranks such as (0, 1)"))


def _calls(node: ast.expr) -> list[tuple[str, list[Any], dict[str, Any]]]:
    """The methods that a chain of calls calls, in their order: a(…).b(…)."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        raise ValueError(f"{ast.unparse(node)!r} is no fault")
    given = [ast.literal_eval(value) for value in node.args]
    named = {word.arg: ast.literal_eval(word.value) for word in node.keywords if word.arg}
    if isinstance(node.func, ast.Name):
        return [(node.func.id, given, named)]
    return [*_calls(node.func.value), (node.func.attr, given, named)]
