"""Which communicator a group gets."""

from d5ray.distributed.communicator import Communicator, Group
from d5ray.distributed.gloo import Gloo
from d5ray.distributed.solo import Solo
from d5ray.distributed.topology import Topology
from d5ray.errors import ConfigurationError, nearest

BACKENDS: dict[str, type[Communicator]] = {"gloo": Gloo}


def check_backend(name: str) -> None:
    """Raise `ConfigurationError` with the nearest name unless this is 'auto' or a known backend."""
    if name != "auto" and name not in BACKENDS:
        raise ConfigurationError(
            f"there is no communicator named {name!r}: {nearest(name, ['auto', *BACKENDS])}"
        )


def join(backend: str, group: Group, topology: Topology) -> Communicator:
    """This member's communicator; 'auto' chooses by where the members are. Waits for the others, bounded."""
    check_backend(backend)
    if group.size == 1:
        return Solo(group, topology)
    return BACKENDS["gloo" if backend == "auto" else backend](group, topology)
