"""Backends: the choice of the communicator that a group gets"""

import warnings
from collections.abc import Callable
from importlib import import_module

from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.group.group import Group
from d5ray.distributed.topologies.topology import Topology
from d5ray.errors import ConfigurationError, nearest

FORMER = {"gloo": "socket"}  # the name of the release before
BACKENDS = {  # imported when asked for
    "shared_memory": ("d5ray.distributed.communicators.shared_memory.communicator", "SharedMemory"),
    "socket": ("d5ray.distributed.communicators.socket.communicator", "Sockets"),
    "hierarchical": ("d5ray.distributed.communicators.hierarchical", "Hierarchical"),
    "nccl": ("d5ray.distributed.communicators.nccl.communicator", "NCCL"),
}


def check_backend(name: str) -> None:
    """Raise `ConfigurationError` with the nearest name unless this is 'auto' or a known backend."""
    if name in FORMER:
        warnings.warn(
            f"communicator={name!r} is {FORMER[name]!r} now, and the old name goes with the next release",
            DeprecationWarning,
            stacklevel=3,
        )
    elif name != "auto" and name not in BACKENDS:
        raise ConfigurationError(
            f"there is no communicator named {name!r}: {nearest(name, ['auto', *BACKENDS])}"
        )


def join(backend: str, group: Group, topology: Topology) -> Communicator:
    """This member's communicator; 'auto' chooses by where the members are. Waits for the others, bounded."""
    check_backend(backend)
    backend = FORMER.get(backend, backend)
    if group.size == 1:
        from d5ray.distributed.communicators.simple.solo import Solo  # noqa: PLC0415 - one of several backends

        return Solo(group, topology)
    module, name = BACKENDS[chosen(group) if backend == "auto" else backend]
    made: Callable[[Group, Topology], Communicator] = getattr(import_module(module), name)
    return made(group, topology)


def chosen(group: Group) -> str:
    """The backend for where the members are: on GPUs, on one node, on one node each, or mixed."""
    if group.device != "cpu":
        return "nccl"
    from d5ray.distributed.communicators.shared_memory.communicator import supported  # noqa: PLC0415 - one of several backends

    nodes = len(set(group.nodes)) or 1
    if supported() is not None or nodes == group.size:
        return "socket"
    return "shared_memory" if nodes == 1 else "hierarchical"
