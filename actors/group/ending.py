"""The end of a run: what agents and servers tell at last, who died before, and the steps that arrived"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow.compute as pc

from d5ray.actors.group.last_calls import LastCalls
from d5ray.errors import AgentError
from d5ray.metrics.record.files import read_stream


@final
@dataclass
class LastAnswers:
    """The last answers of agents, by rank, and servers, by name, when the training is over.

    rows: recorded by each. hashes: of the parameters. parameters: where the run keeps them. dead: agents that
    died before they told all of it, with the reason; dead_servers likewise.
    """

    rows: dict[int, int] = field(default_factory=dict)
    hashes: dict[int, str] = field(default_factory=dict)
    parameters: dict[int, np.ndarray[Any, Any]] = field(default_factory=dict)
    loads: dict[str, dict[str, float]] = field(default_factory=dict)
    dead: dict[int, str] = field(default_factory=dict)
    dead_servers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, last: LastCalls, agents: Mapping[int, Any], loads: Mapping[str, Any], *, parameters: bool
    ) -> "LastAnswers":
        """The answers of agents, by rank, and servers. loads: references; parameters: ask for them too."""
        told = cls()
        asked: dict[str, dict[int, Any]] = {"rows": told.rows, "parameters_sha256": told.hashes}
        if parameters:
            asked["flat_parameters"] = told.parameters
        calls = [{rank: getattr(agent, name).remote() for rank, agent in agents.items()} for name in asked]
        for kept, each in zip(asked.values(), calls, strict=True):
            left = {rank: call for rank, call in each.items() if rank not in told.dead}
            told.dead |= last.of_agents(kept, left, "tell what it came to")
        told.dead_servers = last.of_servers(told.loads, loads, "tell its load")
        return told

    @property
    def sha256(self) -> str | None:
        """The hash of the first agent that told it, among those whose parameters are kept if some are."""
        known = self.hashes.keys() & self.parameters.keys() if self.parameters else self.hashes
        return self.hashes[min(known)] if known else None

    def check(self, *, goes_on: bool) -> None:
        """Raise `AgentError` where a death ends a run whose training is over. goes_on: is it the policy?"""
        dead = [*self.dead.values(), *self.dead_servers.values()]
        if dead and not goes_on:
            raise AgentError(f"the training was over, but not the run: {dead[0]}")
        if not self.hashes:
            raise AgentError(f"the training was over, but nobody is left to give its parameters: {dead[0]}")

    def note_servers(self, note: Callable[..., None]) -> None:
        """Keep in events what servers told, and who died before."""
        for name, load in self.loads.items():
            note("load", -1, server=name, **load)
        for name, reason in self.dead_servers.items():
            note("server_died_at_end", -1, server=name, reason=reason, lost="its load")


def steps_recorded(folder: Path) -> int:
    """The steps whose rows have arrived in a run's folder that is still written."""
    last = -1
    for batch, _ in read_stream(folder / "samples.arrows"):
        own = pc.and_(pc.equal(batch["metric"], "step_time"), pc.equal(batch["scope"], "agent"))
        found = pc.max(batch.filter(own)["step"]).as_py()
        last = max(last, -1 if found is None else found)
    return last + 1


def faults_told(folder: Path) -> list[str]:
    """The texts of the planned faults that events in a run's folder tell of, which is still written."""
    stream = folder / "events.arrows"
    batches = [batch for batch, _ in read_stream(stream)] if stream.exists() else []
    return [
        json.loads(batch["detail"][at].as_py())["planned"]
        for batch in batches
        for at, name in enumerate(batch["name"].to_pylist())
        if name == "fault"
    ]
