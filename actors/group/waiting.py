"""Waits of the agents of a run by rank: for other agents, or for servers that do not answer"""

from collections.abc import Collection, Mapping

from d5ray.actors.servers.run_servers import Which
from d5ray.agent.vitals import Vitals

Awaited = int | Which  # an agent, by rank, or a server


def waiting(
    vitals: Mapping[int, Vitals],
    done: Collection[int],
    pending: Collection[int],
    silent: Mapping[int, Collection[Which]],
) -> dict[int, set[Awaited]]:
    """The agents and servers for which each agent waits that does, by its rank.

    vitals: of those that answer, by rank. done: the ranks of those that have done their steps, and wait for
    those that train, which are `pending`. silent: the servers that do not answer, of each agent's.

    Who waits for servers waits for those that do not answer, which may be others than it has asked: one that
    asks a third, or has its copy there. Where all answer, it waits for the agents that have not come to them.

    >>> from d5ray.distributed.group.waits import PresentWait
    >>> wait = PresentWait("an operation", servers=(0,))
    >>> asks = Vitals(step=7, doing="trains", pieces=0, cpu_seconds=0.5, waits=(wait,))
    >>> works = Vitals(step=6, doing="trains", pieces=0, cpu_seconds=0.5, waits=())
    >>> waiting({0: asks, 1: works}, [], [0, 1], {})
    {0: {1}}
    >>> waiting({0: asks, 1: works}, [], [0, 1], {0: [((0, 0), 1)]})
    {0: {((0, 0), 1)}}
    """
    at_servers = {rank for rank, each in vitals.items() if any(wait.servers for wait in each.waits)}
    found: dict[int, set[Awaited]] = {rank: set(pending) for rank in done}
    for rank, each in vitals.items():
        if each.waits:
            found.setdefault(rank, set()).update(each.awaited())
    for rank in at_servers:
        found[rank] |= set(silent.get(rank, ())) or set(pending) - at_servers
    return found
