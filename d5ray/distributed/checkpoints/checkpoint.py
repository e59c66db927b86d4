"""Saving all agents of a training at one step, and going on from there as if it had never stopped"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from d5ray.checks import check_path
from d5ray.distributed.checkpoints.folder import CheckpointFolder, step_name
from d5ray.distributed.checkpoints.named_tensors import (
    NO_VALUES,
    RANDOM,
    VALUES,
    fill_fixed,
    fill_model,
    give_values,
    own_arrays,
    values_of,
    with_model,
)
from d5ray.distributed.checkpoints.packed import Packed
from d5ray.distributed.checkpoints.savers import Savers
from d5ray.distributed.checkpoints.state import pack, unpack_into
from d5ray.distributed.optimizers.exchange import ExchangeVia
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.parameter_server.client import Server
from d5ray.errors import ConfigurationError, D5Error, StorageError
from d5ray.identity.canonical import canonical
from d5ray.identity.moved import first_class_name
from d5ray.metrics.record.folders import runs_root
from d5ray.metrics.record.tensor_file import NO_FACTS, parsed, pieces
from d5ray.networks.executors.executor import Executor
from d5ray.training.events.event import Event

FORMAT: Final = 2
FREE: Final = frozenset({  # what a training that goes on may have otherwise: it does not change its numbers
    "name", "epochs", "evaluate", "events", "timeout_seconds", "communicator", "cpus_per_agent",
    "gpus_per_agent", "warmup_steps", "on_failure", "orphans", "slow", "late", "monitor_seconds",
    "mirror_seconds", "prefetch", "encryption", "min_agents", "max_failures", "stuck_seconds",
    "heartbeat_seconds", "keep_batch", "scale_rate", "save_model", "save_model_bytes",
})  # fmt: skip


@final
@dataclass(frozen=True)
class Checkpoints:
    """A complete checkpoint: its folder and its step."""

    path: str
    step: int

    @classmethod
    def find(cls, path: str | Path, root: Path | None = None) -> "Checkpoints":
        """The one that a path names: itself, a folder of several (then the last), or a run.

        Raises `ConfigurationError` where there is none that is complete.
        """
        text = str(path)
        if "://" not in text:
            check_path("the checkpoint", path)
        parent, _, last = text.rstrip("/").rpartition("/")
        if last.startswith("step-") and last[5:].isdigit():
            if int(last[5:]) in (folder := CheckpointFolder(parent or ".")).steps():
                return cls(folder.absolute, int(last[5:]))
            raise ConfigurationError(f"{text} is no complete checkpoint: its checkpoint.json is missing")
        root = runs_root() if root is None else root
        places = [text] if "://" in text else [text, f"{text}/checkpoints", str(root / text / "checkpoints")]
        for place in places:
            if steps := (folder := CheckpointFolder(place)).steps():
                return cls(folder.absolute, steps[-1])
        raise ConfigurationError(
            f"{text!r} has no complete checkpoint: give a folder that Checkpoint() wrote, one of its "
            "step-… folders, or the name of a run"
        )

    def __str__(self) -> str:
        return f"{self.path}/{step_name(self.step)}"

    @property
    def manifest(self) -> dict[str, Any]:
        """The checkpoint's description of itself; raises `StorageError` where it cannot be read."""
        return CheckpointFolder(self.path).manifest(self.step)

    def check(self, described: Mapping[str, Any]) -> None:
        """Raise unless an experiment, as `describe` gives it, is the one that was saved."""
        manifest = self.manifest
        if manifest.get("format", FORMAT) > FORMAT:
            raise ConfigurationError(
                f"{self} was written by d5ray {manifest.get('d5ray')} in format {manifest['format']}, this "
                f"d5ray reads formats up to {FORMAT}: take the newer d5ray"
            )
        before, now = manifest["experiment"], comparable(described)
        _check_mesh(self, before.get("mesh"), now.get("mesh"))
        for name in sorted(before.keys() | now.keys()):
            if before.get(name) != now.get(name):
                raise ConfigurationError(
                    f"{self} is of another experiment: its {name} was {_short(before.get(name))}, here it is "
                    f"{_short(now.get(name))}; resume with the same, or begin anew"
                )


def comparable(described: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an experiment's description that must be equal for a training to go on bit for bit."""
    kept = {name: value for name, value in described.items() if name not in FREE}
    loaded: dict[str, Any] = json.loads(json.dumps(kept))
    return loaded


@final
@dataclass(frozen=True)
class Saved:
    """The position of a training at a checkpoint.

    settled: whether the parameters were those to be evaluated. place: in the data, as `Position` has it,
    where agents were fewer or more for a while, so that the step does not tell it.
    """

    step: int
    epoch: int
    settled: bool
    elapsed_seconds: float
    place: tuple[int, ...] | None = None


def save(
    path: str,
    keep: int,
    savers: Savers,
    optimizer: DistributedOptimizer,
    executor: Executor,
    events: Sequence[Event],
    now: Saved,
    facts: Mapping[str, Any],
    model: Mapping[str, str] = NO_FACTS,
) -> int:
    """Write a checkpoint of all agents, who call this at the same step; gives the bytes this one wrote.

    keep: complete checkpoints of this run in the folder, older ones are removed; 0: all. facts: of the
    manifest. model: of the agents' files, for those who read the model out of them. Raises `StorageError` on
    all agents if one of them cannot write.
    """
    folder, first = CheckpointFolder(path), savers.rank == 0
    with _Together(savers, executor) as together:
        together.do(lambda: folder.begin(now.step) if first else None)
    packed = _packed(optimizer, executor, events, now)
    packed.arrays = with_model(executor, packed.arrays, whole=first)
    parts, shards = {savers.file: packed}, 0
    if ExchangeVia.SERVERS in optimizer.exchange:
        optimizer.server.drain()
        shards = optimizer.server.shards
        if savers.replicas.rank == 0:
            parts |= {savers.shard(at): kept for at, kept in enumerate(optimizer.server.kept())}
    own = {} if savers.mesh is None else {"tensors": _tensors(executor)}
    with _Together(savers, executor) as together:
        for name, part in parts.items():
            written = pieces(part.arrays, json.dumps(part.data), model if name == savers.file else {})
            together.do(partial(folder.write, now.step, name, written, own))
    with _Together(savers, executor) as together:
        if first:
            described = _manifest(executor, savers.agents) | {"epoch": now.epoch} | dict(facts)
            together.do(lambda: folder.complete(now.step, savers.files(shards), described))
    if first and keep:
        for step in folder.steps_of(facts.get("run_id"))[:-keep]:
            folder.forget(step)
    return sum(array.nbytes for part in parts.values() for array in part.arrays.values())


def restore(
    found: Checkpoints,
    savers: Savers,
    optimizer: DistributedOptimizer,
    executor: Executor,
    events: Sequence[Event],
) -> Saved:
    """Bring an agent, made anew and bound, to where it was. Raises `StorageError` for what does not fit."""
    folder, name = CheckpointFolder(found.path), savers.file
    manifest = folder.manifest(found.step)
    _check_agents(found, manifest, savers)
    _check_model(found, manifest["files"].get(name, {}).get("tensors", manifest["tensors"]), executor)
    arrays, text = parsed(folder.read(found.step, name), f"{found}/{name}")
    data = json.loads(text)
    fill_model(executor, arrays)
    fixed: list[str] = []
    executor.visit_fixed(lambda name, _: fixed.append(name))
    if fixed:  # they are in one file alone
        first = savers.first
        fill_fixed(executor, arrays if name == first else parsed(folder.read(found.step, first), first)[0])
    arrays, x = own_arrays(arrays), executor.parameters
    unpack_into(optimizer, Packed(data["optimizer"], arrays), x, type(optimizer).__name__)
    for event, own in zip(events, data["events"], strict=False):
        if own["class"] == first_class_name(type(event)):
            unpack_into(event, Packed(own["state"], arrays), x, repr(event))
    executor.set_random_state(arrays[RANDOM])
    give_values(executor.values, arrays.get(VALUES, NO_VALUES), x)
    if ExchangeVia.SERVERS in optimizer.exchange:
        unpack_into(optimizer.server.sending, Packed(data["sending"], arrays), np.empty(0), "sending")
        if savers.replicas.rank == 0:
            _fill_servers(found, folder, savers, optimizer.server)
        savers.any(True, x)  # nobody pushes before
    return Saved(**data["now"])


def _fill_servers(found: Checkpoints, folder: CheckpointFolder, savers: Savers, server: Server) -> None:
    """Bring every shard of the parameter server, made anew, to where it was."""
    names = [savers.shard(at) for at in range(server.shards)]
    server.keep([Packed.read(folder.read(found.step, name), f"{found}/{name}") for name in names])


def _packed(
    optimizer: DistributedOptimizer, executor: Executor, events: Sequence[Event], now: Saved
) -> Packed:
    whole = pack(optimizer, "optimizer")
    arrays = whole.arrays
    arrays[RANDOM] = executor.random_state()
    if len(values := values_of(executor)):
        arrays[VALUES] = values
    states = []
    for at, event in enumerate(events):
        own = pack(event, f"event.{at}")
        arrays |= own.arrays
        states.append({"class": first_class_name(type(event)), "state": own.data})
    data = {"optimizer": whole.data, "events": states, "now": _said(now)}
    if ExchangeVia.SERVERS in optimizer.exchange:
        sending = pack(optimizer.server.sending, "sending")
        data["sending"] = sending.data
        arrays |= sending.arrays
    return Packed(data, arrays)


def _said(now: Saved) -> dict[str, Any]:
    """The position as a checkpoint keeps it: as it ever was, where the step tells the place in the data."""
    return {name: value for name, value in vars(now).items() if value is not None}


class _Together:
    """Something that all agents do; if one of them fails, all raise a `StorageError`."""

    def __init__(self, savers: Savers, executor: Executor) -> None:
        self._savers, self._executor = savers, executor
        self._error: D5Error | None = None

    def do(self, action: Any) -> None:
        try:
            action()
        except D5Error as error:
            self._error = error

    def __enter__(self) -> "_Together":
        return self

    def __exit__(self, *_: object) -> None:
        failed = self._savers.any(self._error is not None, self._executor.parameters)
        if self._error is not None:
            raise self._error
        if failed:
            raise StorageError("the checkpoint is not complete: another agent could not write its part")


def _manifest(executor: Executor, agents: int) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "d5ray": metadata.version("d5ray"),
        "written": datetime.now(UTC).isoformat(),
        "agents": agents,
        "tensors": _tensors(executor),
    }


def _tensors(executor: Executor) -> list[list[Any]]:
    return [[slot.name, slot.offset, list(slot.shape)] for slot in executor.slots]


def _check_mesh(found: Checkpoints, before: Any, now: Any) -> None:
    if before == now:
        return
    if before is None or now is None:
        said = ["agents that hold the whole network" if each is None else "a mesh" for each in (before, now)]
    else:
        names = [name for name in before.keys() | now.keys() if before.get(name) != now.get(name)]
        said = [
            "a mesh with " + ", ".join(f"{name}={_short(each.get(name))}" for name in sorted(names))
            for each in (before, now)
        ]
    raise ConfigurationError(
        f"{found} was written by {said[0]}, here are {said[1]}: each agent goes on with the share that it "
        "saved; resume with the same mesh, or begin anew"
    )


def _check_agents(found: Checkpoints, manifest: Mapping[str, Any], savers: Savers) -> None:
    if (saved := manifest.get("agents", savers.agents)) != savers.agents:
        raise ConfigurationError(
            f"{found} was written by {saved} agents, when others had died, and {savers.agents} are to go on: "
            "take an earlier checkpoint, which all have written"
        )


def _check_model(found: Checkpoints, there: Sequence[Any], executor: Executor) -> None:
    here = _tensors(executor)
    mine: Any
    for mine, saved in zip(here, there, strict=False):
        if mine != saved:
            raise ConfigurationError(
                f"{found} is of another model: it has {saved[0]} {tuple(saved[2])} where this one has "
                f"{mine[0]} {tuple(mine[2])}: resume with the model that was saved"
            )
    if len(here) != len(there):
        raise ConfigurationError(
            f"{found} is of another model: it has {len(there)} tensors, this one {len(here)}: resume with "
            "the model that was saved"
        )


def _short(value: Any) -> str:
    text = json.dumps(canonical(value))
    return text if len(text) <= 100 else text[:97] + "…"
