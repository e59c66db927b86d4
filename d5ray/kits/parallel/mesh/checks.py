"""What a mesh excludes of the other values of an experiment"""

from d5ray.distributed.optimizers.exchange import ExchangeVia
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.errors import ConfigurationError
from d5ray.kits.parallel.mesh.shape import MeshShape
from d5ray.training.events.checkpoint import Checkpoint

INSTEAD = {  # of what an experiment says for whole networks
    "accumulate": "set Mesh(micro_batches=…), whose gradients are added up",
    "recompute": "set Mesh(recompute=True)",
    "precision": "take 'float32'",
    "compile": "leave compile out",
}


def check_staged(mesh: MeshShape, *, accumulate: int, **computation: object) -> None:
    """Raise `ConfigurationError` for what executors of whole networks can, and those of stages cannot."""
    asked = computation if accumulate == 1 else {"accumulate": accumulate} | computation
    for name, value in asked.items():
        raise ConfigurationError(
            f"{name} is {value!r}, which {mesh!r} does not know, whose agents compute pieces of a network: "
            f"{INSTEAD[name]}"
        )


def check_shared(
    mesh: MeshShape, distributed: DistributedOptimizer, on_failure: str, events: object, **policies: object
) -> None:
    """Raise `ConfigurationError` for what a network held by several agents cannot do."""
    if not mesh.shares_networks:
        return
    several = f"{mesh.stages} stages × {mesh.parts} parts hold a network together"
    _check_deaths(mesh, distributed, on_failure, events)
    for name, wanted, why in (
        ("late", (), "all of them begin together"),
        ("slow", (), "each waits for the others: slow the replicas of a mesh without stages"),
    ):
        if policies[name] != wanted:
            raise ConfigurationError(
                f"{name} is {policies[name]!r}, but {several}, and {why}: leave {name} out"
            )
    if ExchangeVia.SHARED_MEMORY in distributed.exchange:
        raise ConfigurationError(
            f"{several}, which {distributed!r} cannot train: its agents share the memory of all "
            "parameters; take another distributed optimizer, or a mesh of one stage and part"
        )


def _check_deaths(
    mesh: MeshShape, distributed: DistributedOptimizer, on_failure: str, events: object
) -> None:
    """Raise `ConfigurationError` where a run could not go on after a death as it is to."""
    if on_failure in ("restart", "replace") and distributed.one_sided:
        raise ConfigurationError(
            f"on_failure is {on_failure!r}, but a replica of {mesh.stages} stages × {mesh.parts} parts joins "
            f"others only where all wait for each other, which those of {distributed!r} do not: take "
            "on_failure='continue'"
        )
    if mesh.replicas > 1 or on_failure == "stop":
        return
    saved = events if isinstance(events, (tuple, list)) else (events,)
    if on_failure == "restart" and any(isinstance(event, Checkpoint) for event in saved):
        return
    raise ConfigurationError(
        f"on_failure is {on_failure!r}, but there is one replica, and when an agent of its {mesh.stages} "
        f"stages × {mesh.parts} parts dies, no other has its share: set replicas=2 or more, or "
        "on_failure='restart' with Checkpoint(every_steps=…) among the events, from which all go on, or "
        "leave on_failure out"
    )
