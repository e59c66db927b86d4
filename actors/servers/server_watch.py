"""Watch on parameter servers: asks all of them for signs of life, and knows who gives none"""

from dataclasses import dataclass
from typing import Any, final

import ray

from d5ray.actors.servers.run_servers import RunServers, Which


@dataclass
class _Asked:
    """A question to one process of a server, by the clock of who asks."""

    answer: Any  # reference to it
    at: float


@final
class ServerWatch:
    """Asks the servers of a run again as soon as they have answered. Waits for none."""

    def __init__(self, servers: RunServers) -> None:
        self._servers = servers
        self._asked: dict[Any, _Asked] = {}  # by the reference that fails when the process dies
        self._ended: set[Any] = set()  # processes likewise

    def silent(self, now: float) -> dict[Which, float]:
        """The seconds for which each server has not answered that has not, by now; none for a dead one."""
        watching = self._servers.watching
        found: dict[Which, float] = {}
        self._asked = {process: asked for process, asked in self._asked.items() if process in watching}
        for process, which in watching.items():
            if process in self._ended:
                continue
            asked = self._asked.get(process)
            if asked is None or ray.wait([asked.answer], timeout=0)[0]:
                self._asked[process] = _Asked(self._servers.sign_of_life(which), now)
            else:
                found[which] = now - asked.at
        return found

    def forget(self, which: Which) -> None:
        """Take notice that a server is ended, which is asked no more."""
        self._ended.update(process for process, each in self._servers.watching.items() if each == which)
