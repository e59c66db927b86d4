"""Recovery after a death: all go back to their last complete step, take one survivor's, and prove it

A step that a death interrupts leaves some agents after it and some before it, and arrays that were exchanged
in place hold half a sum. So what counts is what each agent kept at the end of its last complete step. Where
agents that train one model only meet after several, the last that counts is that after which they had met:
what one has learned alone since then dies with it, and is in nobody else's model.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from types import SimpleNamespace
from typing import Any, final

import numpy as np

from d5ray.distributed.checkpoints.equality import compares, divergence, told
from d5ray.distributed.checkpoints.named_tensors import RANDOM, VALUES, give_values, values_of
from d5ray.distributed.checkpoints.packed import Packed
from d5ray.distributed.checkpoints.state import host_values, pack, unpack_into
from d5ray.distributed.communicators.agreement.rows import gathered
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.errors import AgentError
from d5ray.frameworks.host import native
from d5ray.metrics.record.tensor_file import Array
from d5ray.networks.executors.executor import Executor
from d5ray.training.arrays import copy_of
from d5ray.training.batches.epochs import START, Epochs, Position

NOTHING = -1  # steps of an agent that has just been started
OF_EXECUTOR = ("parameters", "buffers", "counters")
PARAMETERS, STATES = "state.parameters", "state.states"  # as `pack` names them


@final
@dataclass(frozen=True)
class RestartPoint:
    """The step from which a group goes on that was formed again after a death.

    steps    complete steps that each member had done, by its rank in the group; -1: it was just started
    source   the member with the most, of several the first: whose state is taken
    step     its steps, from which all go on
    sha256   of the state that all have now; empty where each agent's model is its own
    anew     what begins anew because it died with an agent, or depends on the group
    place    the source's place in the data, from which all go on
    global_batch, rate_factor   of the steps from there on; the factor is relative to the planned rate
    """

    steps: tuple[int, ...]
    source: int
    sha256: str = ""
    anew: tuple[str, ...] = ()
    place: Position = START
    global_batch: int = 0
    rate_factor: float = 1.0

    @property
    def step(self) -> int:
        """The complete steps of the member whose state is taken."""
        return self.steps[self.source]


@final
@dataclass
class Committed:
    """A copy of an agent's state at the end of its last complete step, in the memory where that lies.

    common: what agents that train one model have alike: parameters, state that is not trained, the base
    optimizer's state, and of the rule what it names in `shared_state`. own: what is this agent's alone.
    before: the same of the step before it, for agents that hold a network together: a death may leave some
    of them a step ahead of others. With common goes the number of passes, by which masks are drawn.
    """

    step: int = NOTHING
    common: Packed = field(default_factory=Packed)
    own: Packed | None = None
    before: "Committed | None" = None

    def keep(self, step: int, optimizer: DistributedOptimizer, executor: Executor) -> None:
        """Copy the state; that many steps are complete."""
        if self.before is not None and self.step != step:
            self._change_places(self.before)
        self.common = _copied(_common(optimizer, executor), self.common)
        self.own = _copied(_own(optimizer), self.own or Packed())
        self.step = step
        self.common.arrays |= {RANDOM: executor.random_state(), VALUES: values_of(executor)}

    def go_back(self, together: Iterable[Communicator], like: Any) -> None:
        """Go back to a step that all have done who hold a network together, each a share.

        Where one of them was just started, none has a state. together: groups of them, each with members
        of the one before it; like: as in `agree`.
        """
        step = self.step
        for communication in together:
            step = int(gathered(np.array([step]), communication, like).min())
        if step == NOTHING:
            self.step, self.common, self.own = NOTHING, Packed(), None
        elif step != self.step:
            if self.before is None or self.before.step != step:
                raise AgentError(
                    f"an agent has done {self.step} steps of a network, of which another holds a share and "
                    f"has done {step}: go on from a checkpoint"
                )
            self._change_places(self.before)

    def _change_places(self, other: "Committed") -> None:
        mine = self.step, self.common, self.own
        self.step, self.common, self.own = other.step, other.common, other.own
        other.step, other.common, other.own = mine

    def agree(
        self,
        communication: Communicator,
        like: Any,
        rule: DistributedOptimizer,
        epochs: Epochs,
        *,
        rank: int,
        since: int,
    ) -> RestartPoint:
        """Find out who is furthest; agents that train one model, and new ones, take that one's state.

        All members call it. like: an array of the framework and on the device that they exchange from.
        epochs: of this agent, by which it has drawn until now; the place of all is that of the source's.
        rank: the agent's own. since: the step after which they were equal for the last time. Raises
        `AgentError` where agents differed before the death, `PeerLost` where another one is lost: this is
        then what it was, or all of the source's.
        """
        x = np.zeros(0) if self.step == NOTHING else self.common.arrays[PARAMETERS]
        rows = gathered(told(rank, x, self.step, since), communication, like)
        steps = rows[:, 2]
        if steps.max() == NOTHING:
            raise AgentError(
                f"an agent died before the agents of {rule!r} had met since the checkpoint that they went on "
                "from, which was written in the midst of a period: what the dead one had learned in it is "
                "nobody else's. Go on from that checkpoint again, or let Checkpoint(every_steps=…) be a "
                "multiple of the period"
            )
        if compares(rule) and rule.equal_after(int(steps.max())) and (found := divergence(rows)):
            raise AgentError(str(found))
        source = int(np.argmax(steps))  # the first of those with the most
        data = np.empty(0, np.uint8)
        if communication.rank == source:
            values = {name: host_values(array, name) for name, array in self.common.arrays.items()}
            place = astuple(epochs.at(self.step))
            data = Packed([self.common.data, place], values).bytes
        received = Packed.read(_broadcast(data, communication, like, source), "the state that an agent sent")
        common, place = received.data
        if communication.rank != source and (rule.one_model or self.step == NOTHING):
            kept, self.common = self.common, Packed(common, received.arrays)
            if self.step == steps[source]:
                self._keep_own(kept, rule)
        self.step = int(steps[source])
        return RestartPoint(tuple(int(step) for step in steps), source, place=Position(*place))

    def give_parameters(self, executor: Executor) -> None:
        """Let the executor have its part of the state."""
        packed = Packed({name: self.common.data[name] for name in OF_EXECUTOR}, self._values(self.common))
        unpack_into(_of_executor(executor), packed, executor.parameters, "the agent")
        executor.set_random_state(self.common.arrays[RANDOM])
        give_values(executor.values, self.common.arrays[VALUES], executor.parameters)

    def give_rule(self, optimizer: DistributedOptimizer, one_model: bool) -> None:
        """Let a distributed optimizer that was bound anew have its part, as far as it outlives the group."""
        like = optimizer.x
        names = ("states", "shared", "shared_rng") if one_model else ("states",)
        packed = Packed({name: self.common.data[name] for name in names}, self._values(self.common))
        for key, _ in packed.data["states"]["dict"]:
            optimizer._state_of(slice(*key["tuple"]))  # arrays to be filled in place
        fresh = _of_rule(optimizer)
        unpack_into(fresh, packed, like, type(optimizer).__name__)
        if one_model:
            _set(optimizer, fresh.shared)
        if self.own is not None:
            own = _own(optimizer)
            kept = Packed(self.own.data, self._values(self.own))
            unpack_into(own, kept, like, type(optimizer).__name__)
            _set(optimizer, own.own)

    def _keep_own(self, kept: Packed, rule: DistributedOptimizer) -> None:
        """Keep of the agent's state what is not another one's after the same step."""
        self.common.arrays |= {name: kept.arrays[name] for name in (RANDOM, VALUES)}
        if rule.own_base_state:
            arrays = {name: a for name, a in self.common.arrays.items() if not name.startswith(STATES)}
            arrays |= {name: array for name, array in kept.arrays.items() if name.startswith(STATES)}
            self.common = Packed(self.common.data | {"states": kept.data["states"]}, arrays)

    @staticmethod
    def _values(packed: Packed) -> dict[str, Array]:
        return {name: host_values(array, name) for name, array in packed.arrays.items()}


def prove(step: int, optimizer: DistributedOptimizer, executor: Executor, communication: Communicator) -> str:
    """The SHA-256 of the state that all members have in common; `AgentError` on all where one's differs."""
    own = digest(step, optimizer, executor)
    rows = gathered(np.frombuffer(own, np.uint8), communication, executor.parameters)
    hashes = [row.tobytes().hex() for row in rows]
    if len(set(hashes)) > 1:
        listed = ", ".join(f"rank {rank}: {text[:12]}…" for rank, text in enumerate(hashes))
        raise AgentError(
            f"the agents differ after their group was formed again at step {step} ({listed}), though "
            f"{optimizer!r} trains one model: a rule whose agents differ says one_model = False, and names "
            "in shared_state only what is alike on all; else go on from a checkpoint"
        )
    return own.hex()


def digest(step: int, optimizer: DistributedOptimizer, executor: Executor) -> bytes:
    """SHA-256 over the step and all that agents who train one model have alike, as it is now."""
    common = _common(optimizer, executor)
    if optimizer.own_base_state:
        common.states = {}
    packed = pack(common, "state", host_values)
    found = hashlib.sha256(json.dumps([step, packed.data], sort_keys=True).encode())
    for name in sorted(packed.arrays):
        found.update(packed.arrays[name].view(np.uint8).data)
    return found.digest()


def begun_anew(optimizer: DistributedOptimizer, committed: Committed) -> tuple[str, ...]:
    """The arrays of a rule that `start` has made anew, and no state was taken over for; all by name."""
    taken = {path.partition(".")[0] for path in (*optimizer.shared_state, *optimizer.own_state)}
    made = [name for name, value in vars(optimizer).items() if hasattr(value, "dtype") and name not in taken]
    if committed.common.data["sharded"]:
        made.append("the base optimizer's state, a share of which died")
    return tuple(sorted(made))


# --------------------------------------------------------------------------------------------------------


def _common(optimizer: DistributedOptimizer, executor: Executor) -> SimpleNamespace:
    return SimpleNamespace(**vars(_of_executor(executor)), **vars(_of_rule(optimizer)))


def _of_executor(executor: Executor) -> SimpleNamespace:
    return SimpleNamespace(
        parameters=executor.parameters, buffers=executor.buffers, counters=list(executor.counters)
    )


def _of_rule(optimizer: DistributedOptimizer) -> SimpleNamespace:
    covered = sum(end - begin for begin, end in optimizer._states)
    sharded = 0 < covered < len(optimizer.x)  # each agent has that of its own slice, as in ZeRO
    return SimpleNamespace(
        states={} if sharded else optimizer._states,
        sharded=sharded,
        shared=_found(optimizer, optimizer.shared_state),
        shared_rng=optimizer.shared_rng,
    )


def _own(optimizer: DistributedOptimizer) -> SimpleNamespace:
    return SimpleNamespace(own=_found(optimizer, optimizer.own_state), rng=optimizer.rng)


def _found(optimizer: DistributedOptimizer, paths: Iterable[str]) -> dict[str, Any]:
    """The values at these paths, such as "memory.residual" in a dictionary; those that are there."""
    found = {}
    for path in paths:
        name, *keys = path.split(".")
        value = getattr(optimizer, name)
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            found[path] = value
    return found


def _set(optimizer: DistributedOptimizer, values: dict[str, Any]) -> None:
    for path, value in values.items():
        name, *keys = path.split(".")
        if not keys:
            setattr(optimizer, name, value)
            continue
        held = getattr(optimizer, name)
        for key in keys[:-1]:
            held = held[key]
        held[keys[-1]] = value


def _copied(state: SimpleNamespace, before: Packed) -> Packed:
    """The state packed, its arrays copied where they lie, into the memory of an older copy."""
    packed = pack(state, "state", lambda array, _: array)
    for name, array in packed.arrays.items():
        old = before.arrays.get(name)
        if (
            old is None
            or type(old) is not type(array)
            or old.shape != array.shape
            or old.dtype != array.dtype
        ):
            packed.arrays[name] = copy_of(array)
        else:
            old[...] = array
            packed.arrays[name] = old
    return packed


def _broadcast(data: Array, communication: Communicator, like: Any, source: int) -> Array:
    """The source's bytes (n,) uint8, whose number the others do not know."""
    length = native(np.array([len(data)]), like)
    communication.broadcast(length, root=source)
    count = int(length[0])
    given = native(data if communication.rank == source else np.zeros(count, np.uint8), like)
    communication.broadcast(given, root=source)
    return host_values(given, "what the source gave")


def described(group: int, agreed: Mapping[int, RestartPoint], one_model: bool) -> dict[str, Any]:
    """The facts: whose state was taken, who lacked how many steps, the hashes. agreed: by rank."""
    ranks = sorted(agreed)
    found = agreed[ranks[0]]
    steps = dict(zip(ranks, found.steps, strict=True))
    facts: dict[str, Any] = {
        "group": group,
        "members": ranks,
        "source": ranks[found.source],
        "behind": {rank: found.step - done for rank, done in steps.items() if NOTHING < done < found.step},
        "new": [rank for rank, done in steps.items() if done == NOTHING],
        "one_model": one_model,
        "anew": found.anew,
    }
    if one_model:
        facts["sha256"] = {rank: agreed[rank].sha256 for rank in ranks}
    return facts
