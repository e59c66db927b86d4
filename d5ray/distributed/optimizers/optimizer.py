"""DistributedOptimizer: a `step` that uses only x, gradient, apply and communication"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

import numpy as np

from d5ray.checks import KnownKeywords, wrong_kind
from d5ray.distributed.buffers import BufferPolicy, LocalBuffers
from d5ray.distributed.communicators.agreement.rows import gathered
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.one_sided.peers import Peers
from d5ray.distributed.optimizers.exchange import ExchangeVia, derive
from d5ray.distributed.parameter_server.client import Server
from d5ray.distributed.parameter_server.consistency import Asynchronous, Consistency
from d5ray.distributed.parameter_server.server_rules import Descend, ServerRule
from d5ray.errors import ConfigurationError
from d5ray.frameworks.host import host_copy, host_view, on_device
from d5ray.names.renamed import RenamedAttribute
from d5ray.networks.executors.executor import Executor
from d5ray.networks.executors.flat_buffers import Slot
from d5ray.networks.vector import Vector
from d5ray.training.arrays import NO_GRADIENT, copy_of, is_negative_zero, wait_for, zeros_like
from d5ray.training.batches.batch import Batch
from d5ray.training.optimizers.optimizer import Optimizer, State, part_of

if TYPE_CHECKING:
    from d5ray.distributed.topologies.requirements import Requirement

USED = 0  # in place of a hash
Range = tuple[int, int]  # elements [begin, end) of the flat gradient


class DistributedOptimizer(KnownKeywords, ABC):
    """Level 3: subclass it, write `step`, and hand the class (or an instance) to an `Experiment`.

    One instance lives on every agent. `step` may use
      self.x               the agent's flat parameters (n,), an array of the framework; change it in place
      self.gradient(batch) the flat gradient (n,) at self.x; a buffer that the next call overwrites
      self.apply(g)        the base optimizer's own update of self.x
      self.communication   the `Communicator` of all agents
      self.server          the parameter servers, see `Server`; with `exchange = ExchangeVia.SERVERS`
      self.peers           the other agents one-sidedly, see `Peers`; with `exchange = ExchangeVia.PEERS`
      self.loss_weight     the weight of the last gradient's batch: its samples, or the weight from its loss
      self.learning_rate   the base optimizer's learning rate
      self.slots           the name, place and shape of each parameter tensor in the flat buffers
      self.rng             a NumPy generator, different on every agent, equal for equal seeds
      self.shared_rng      a NumPy generator that gives the same on every agent
    An `__init__` argument, kept under its name, is a hyperparameter of the subclass. Make buffers in `start`,
    not in `__init__`. Evaluations always use self.x, as the last step left it.

    `invariant` names what the steps conserve, in any order and after any failure: one of `INVARIANTS`, or "".
    With "one model", the default, all agents have the same x after the steps that `equal_after` names, which
    is checked periodically and at the end: a run whose agents differ fails, and names them. Any other
    invariant implies `one_model = False`, see below.

    `needs` are the requirements on the topology; they are checked before anything starts. `buffer_policy` is
    the policy by which state that is not trained, such as BatchNorm's statistics, is combined for an
    evaluation; the step after it continues with the agent's own.

    `exchange` says how agents communicate; `ExchangeVia.SERVERS | ExchangeVia.PEERS` means both.
      COLLECTIVES    only by `self.communication`, which always exists: agents wait for each other
      SERVERS        by `self.server`; `consistency`, `server_rule` and `server_optimizer` configure the
                     servers, unless the experiment's `Servers` does
      PEERS          by `self.peers`
      SHARED_MEMORY  all agents share one x in memory; such a run cannot be replayed
    Except with collectives, agents are `asynchronous`, unless the class says that they are not: they are
    evaluated when all have ended, since each ends at its own time, and the run can be replayed. In a class
    with `idle_round`, an agent that has completed its steps calls it until all have completed theirs.

    After an agent's death `start` is called again on the remaining agents. With `one_model` all of them take
    parameters, buffers, base optimizer's state and `shared_state` of the most advanced one, and prove by a
    hash that they are equal; `one_model = False` says that every agent has its own model, and keeps it with
    its base optimizer's state. `shared_state` names attributes that are equal on all agents, `own_state`
    those that differ; "memory.residual" is an entry of a dictionary. Everything else that `start` makes is
    reset. All agents roll back to the last step that `meets_after` names, and repeat the steps since then.
    `own_base_state = True` says that each agent's base optimizer has seen its own gradients: agents that
    have done as many steps keep its state, and only a newly started agent takes another's.
    """

    needs: "tuple[Requirement, ...]" = ()
    buffer_policy: BufferPolicy = LocalBuffers()
    untrained = RenamedAttribute("buffer_policy")
    exchange: ExchangeVia = ExchangeVia.COLLECTIVES
    asynchronous = False
    replayable = True
    has_idle_rounds = False
    invariant = ""
    one_model = True
    own_base_state = False
    shared_state: tuple[str, ...] = ()
    own_state: tuple[str, ...] = ()

    _executor: Executor
    _ranges: tuple[Range, ...]
    base: Optimizer
    communication: Communicator
    server: Server
    peers: Peers
    rng: np.random.Generator
    shared_rng: np.random.Generator
    loss: float = float("nan")
    loss_weight: float = 0.0
    update_ns: int = 0
    _moment: int = 0  # the step of the run that is under way
    moving: Sequence[str] = ()  # buffers that are the first agent's before every step
    _own_buffers: Sequence[Any] = ()  # of this agent, while it has those that are evaluated
    _unused: tuple[str, ...] = ()  # parameters that got no gradient here in the last pass
    _left_out: frozenset[str] = frozenset()  # the same of the last pass that had samples
    _idle_since: int = -1  # the communicator's operations when a pass had no samples
    _seen: frozenset[str] = frozenset()  # parameters that have got one, where servers take it
    _using_all: tuple[Communicator, ...] = ()  # groups whose members had gradients of all at the first mean
    _weighs: bool | None = None  # whether batches have weights, where no executor knows before a pass

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        derive(cls)

    @abstractmethod
    def step(self, batch: Batch) -> None:
        """One step of this agent on its share of the step's samples."""

    def start(self) -> None:
        """Called once on the agent before the first step, with self.x set: make buffers here."""

    @final
    @property
    def one_sided(self) -> bool:
        """True if a step needs no other agent's step, but servers, windows or memory alone."""
        return self.exchange != ExchangeVia.COLLECTIVES

    @property
    def consistency(self) -> Consistency:
        """The consistency of its parameter servers: when they apply pushes, and when agents may read."""
        return Asynchronous()

    @property
    def server_rule(self) -> ServerRule:
        """The rule by which its parameter servers apply pushes."""
        return Descend()

    @property
    def server_optimizer(self) -> Optimizer | None:
        """The update rule at its parameter servers; None: the experiment's own."""
        return None

    def equal_after(self, steps: int) -> bool:
        """True if all agents have the same x after that many steps, if the invariant is one model."""
        return True

    def meets_after(self, steps: int) -> bool:
        """True if after that many steps no agent has anything that is missing in the others' model.

        To such a step agents roll back after a failure, and at such a step they join and leave. It is False
        if an agent holds something for the next exchange, accumulated gradients or local steps; True for
        optimizers with a model for every agent.
        """
        return not self.one_model or self.equal_after(steps)

    @final
    def met_by(self, steps: int, last: int) -> int:
        """The first number of steps from this one on that `meets_after` names; `last` at most."""
        while steps < last and not self.meets_after(steps):
            steps += 1
        return steps

    @final
    def met_before(self, steps: int) -> int:
        """The last number of steps up to this one that `meets_after` names."""
        while steps > 0 and not self.meets_after(steps):
            steps -= 1
        return steps

    def finish(self) -> None:
        """Called before an evaluation: put into self.x the parameters to evaluate."""

    def resume(self) -> None:
        """Called before the step after an evaluation: restore in self.x what `finish` replaced."""

    def idle_round(self, round: int) -> None:
        """Called at the rate of steps while others train; rounds continue the count of steps."""

    def check(self, elements: int) -> None:
        """Raise `ConfigurationError` if this cannot train a model of that many parameters; called unbound."""

    @final
    def bind(
        self,
        *,
        executor: Executor,
        base: Optimizer,
        communication: Communicator,
        rng: np.random.Generator,
        shared_rng: np.random.Generator | None = None,
        server: Server | None = None,
        peers: Peers | None = None,
    ) -> None:
        """Give this instance the objects that its step uses; called by the agent, on all agents at once."""
        self._hyperparameters = _hyperparameters(self)
        self._executor, self._weighs, self._seen, self._using_all = executor, None, frozenset(), ()
        self._ranges = ((0, len(executor.parameters)),)
        self._states: dict[Range, State] = {}
        self.base = base
        self.communication = communication
        if server is not None:
            self.server = server
        if peers is not None:
            self.peers = peers
        self.rng = rng
        self.shared_rng = np.random.default_rng(0) if shared_rng is None else shared_rng
        self.start()
        for path in (*self.shared_state, *self.own_state):
            if not hasattr(self, name := path.partition(".")[0]):
                raise ConfigurationError(
                    f"{type(self).__name__} names {path!r} in shared_state or own_state, but has no {name!r} "
                    "after start: make it there, or take it out"
                )

    @final
    def grow(self, before: tuple[Slot, ...]) -> None:
        """Continue with more parameters than before; the base optimizer's state for the old ones stays."""
        now, x = self._executor.slots, self._executor.parameters
        self._ranges = ((0, len(x)),)
        for state in list(self._states.values()):
            self._states = {self._ranges[0]: self.base.grown(state, x, before, now)}
        self.start()

    @final
    def check_growing(self) -> None:
        """Raise `ConfigurationError` if parameters that the model has unfrozen cannot be added."""
        whole, why = (0, len(self._executor.parameters)), ""
        if self.one_sided:
            why = "servers or other agents hold the parameters"
        elif self.shared_state or self.own_state:
            why = "it has arrays of the size of the parameters"
        elif self._states.keys() - {whole}:
            why = "each agent has the update rule's state of a part of the parameters"
        if why:
            raise ConfigurationError(
                "the model has released parameters by requires_grad_(True) in training, which "
                f"{type(self).__name__} cannot take over, since {why}: let them require gradients from the "
                "start, or choose another distributed optimizer, such as AllreduceSGD"
            )

    @property
    def x(self) -> Vector:
        """The flat parameters (n,). Assigning copies into the buffer that the model's tensors view."""
        parameters: Vector = self._executor.parameters
        return parameters

    @x.setter
    def x(self, value: Any) -> None:
        parameters = self._executor.parameters
        if value is not parameters:
            parameters[...] = value

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The name, place and shape of each parameter tensor in the flat parameters and gradient."""
        return self._executor.slots

    @property
    def learning_rate(self) -> float:
        """The base optimizer's learning rate, at the current step."""
        return self.base.at(self._moment).learning_rate

    @final
    def buckets(self, bucket_bytes: int) -> None:
        """Let `gradient` announce buckets of at least that many bytes; to be called in `start`."""
        self._ranges = self._executor.buckets(bucket_bytes)

    @final
    def gradient(self, batch: Batch, on_ready: Callable[[Any], None] | None = None) -> Vector:
        """The flat gradient (n,) of the loss on this agent's samples at self.x, times the batch's weight.

        The weight is 1 unless a remainder gives agents shares of different size; with it the mean over the
        agents is the mean over the samples. If the loss returns (sum, weight), see `Loss`, these determine
        it, see `gradient_factor`. An agent without samples, or with a weight of 0, gets zeros. A parameter
        without a gradient gets -0.0: if all agents have that, `apply` leaves the parameter unchanged, as
        PyTorch does.

        on_ready(bucket) is called for every bucket (a piece of the flat gradient, see `buckets`) as soon as
        it is complete, while the backward pass continues: in the same order on every agent, with or without
        samples. From then on the bucket belongs to the callee.
        """
        gradients: Vector = self._executor.gradients
        self._moment, factors = batch.step, list[float]()
        if self.base.prepares:
            self.base.prepare(self._executor.parameters, self._state_of(slice(0, len(gradients))))

        def scaled(part: Any) -> Any:
            if not factors:  # it asks the other agents, once
                factors.append(self._scale(batch))
            if factors[0] == 0.0:
                part[...] = NO_GRADIENT
            elif factors[0] != 1.0:
                part *= factors[0]
            return part

        def announce(begin: int, end: int) -> None:
            assert on_ready is not None
            on_ready(scaled(gradients[begin:end]))

        if len(batch.labels) == 0:
            self.loss = float("nan")
            gradients[...] = NO_GRADIENT
            for begin, end in self._ranges if on_ready else ():
                announce(begin, end)
        elif on_ready:
            self.loss = self._executor.inference_and_backprop(batch.inputs, batch.labels, on_ready=announce)
        else:
            self.loss = self._executor.inference_and_backprop(batch.inputs, batch.labels)
        if not on_ready:
            scaled(gradients)
        unused = self._executor.unused if self.loss_weight else self.slots
        self._unused = tuple(slot.name for slot in unused)
        if self.loss_weight:
            self._left_out = frozenset(self._unused)
        self._idle_since = -1 if on_ready or len(batch.labels) else self.communication.traffic.operations
        if ExchangeVia.SERVERS in self.exchange and self.loss_weight:
            self._check_servers_leave_unused()
        return gradients

    def _scale(self, batch: Batch) -> float:
        """The factor of the gradient of this agent's mean loss."""
        own = self._executor.weight if len(batch.labels) else None
        self.loss_weight = float(len(batch.labels)) if own is None else own
        known = self._executor.weighs if self._weighs is None else self._weighs
        if known is False:
            return batch.weight
        return self.gradient_factor(batch, own)

    def gradient_factor(self, batch: Batch, weight: float | None) -> float:
        """The factor of the gradient of the agent's mean loss, if the loss may return weights.

        weight: of its batch; None: the loss returns none, or there are no samples. The default is w P / Σ w,
        whose mean over the P agents is that over all of their samples, in steps before and after which all
        agents have the same x; in other steps each agent's model is trained by its own mean. Override it for
        another exchange.
        """
        step = batch.step
        if not (self.one_model and self.equal_after(step) and self.equal_after(step + 1)):
            return 0.0 if weight == 0.0 else batch.weight
        told = np.array([0.0 if weight is None else weight, weight is not None])
        rows = gathered(told, self.communication, self.x) if self.communication.size > 1 else told[None]
        total, self._weighs = rows[:, 0].sum(), bool(rows[:, 1].any())
        if not self._weighs:
            return batch.weight
        return float(told[0] * len(rows) / total) if total else 0.0

    @final
    def apply(self, gradient: Any, part: slice | None = None) -> None:
        """x ← the base optimizer's update of x by this flat gradient (n,); of a part of x by the same part.

        The base optimizer's state is made at the first call, separately for every part: an agent that applies
        only one slice needs memory only for the state of that slice.
        """
        now = self.communication.scheduler.now
        begin = now()
        part = slice(0, len(gradient)) if part is None else part
        unused = self._unused_in(gradient, part) if self._unused else ()
        if self._idle_since == self.communication.traffic.operations:  # nobody's gradients were added
            unused = tuple(slot for slot in unused if slot.name in self._left_out)
        self.base.step(self._executor.parameters[part], gradient[part], self._state_of(part), unused)
        wait_for(gradient)  # else the time is that of the launches, and the next pass's has the rest
        self.update_ns += now() - begin

    @final
    def mark_unused(self, gradient: Any) -> None:
        """Write -0.0 into a flat gradient (n,) of all agents for parameters without a gradient on any agent.

        For an exchange that is not a plain sum, and so loses the -0.0. Agents tell each other where they have
        no gradient, if the model may leave parameters out.
        """
        for slot in self.unused_by_all():
            gradient[slot.offset : slot.offset + slot.size] = NO_GRADIENT

    @final
    def unused_by_all(self) -> tuple[Slot, ...]:
        """The tensors without a gradient in any agent's last pass; called by all agents."""
        if not self._may_leave_out:
            return ()
        own = np.array([slot.name in self._unused for slot in self.slots], np.uint8)
        rows = gathered(own, self.communication, self.x) if self.communication.size > 1 else own[None]
        everybody = np.all(rows, axis=0).tolist()
        return tuple(slot for slot, unused in zip(self.slots, everybody, strict=True) if unused)

    @final
    @contextmanager
    def agreed_bits_stay(self, communication: Communicator) -> Iterator[None]:
        """A context in which x becomes a mean over a group, but what all members agree on keeps its bits.

        A mean of equal numbers is rounded, and of three may be another one. It is about tensors that the last
        passes of all members had no gradient of, if the model may leave parameters out: where the first mean
        finds that nobody has left one out, later ones do not ask again.
        """
        kept = []
        asks = self._may_leave_out and communication.size > 1
        if asks and not any(communication is each for each in self._using_all):
            own = np.array([self._bits_if_unused(slot) for slot in self.slots], np.int64)
            rows = gathered(own, communication, self.x)
            if (rows == USED).all():
                self._using_all += (communication,)
            agree = (rows == rows[0]).all(axis=0) & (rows[0] != USED)
            parts = [part_of(self.x, slot) for slot, same in zip(self.slots, agree, strict=True) if same]
            kept = [(part, copy_of(part)) for part in parts]
        yield
        for part, before in kept:
            part[...] = before

    def _bits_if_unused(self, slot: Slot) -> int:
        """A hash of a tensor without a gradient in the last pass."""
        if slot.name not in self._unused:
            return USED
        part = self.x[slot.offset : slot.offset + slot.size]
        flat = host_copy(part) if on_device(part) else host_view(part)
        digest = hashlib.blake2b(flat.tobytes(), digest_size=8).digest()
        return int.from_bytes(digest, "little", signed=True) or 1

    @property
    def _may_leave_out(self) -> bool:
        """True if the executor may give parameters no gradient."""
        return not isinstance(getattr(type(self._executor), "unused", ()), tuple)

    def _check_servers_leave_unused(self) -> None:
        """Raise `ConfigurationError` where servers would move a parameter that has no gradient.

        They know no tensors, and take it for a gradient of zero: it decays, and goes on by what earlier
        gradients have left.
        """
        seen, rule = self._seen, self.server_optimizer or self.base
        again = next((name for name in self._unused if name in seen), None)
        if len(seen) + len(self._unused) < len(self.slots) or again:
            self._seen = seen | {slot.name for slot in self.slots}.difference(self._unused)
        if not self._unused or rule.whole:
            return
        x = copy_of(self.x[: min(len(self.x), 4)])
        x[...] = 1
        state = rule.state(x)
        if again:
            rule.step(x, copy_of(x), state)
        before = copy_of(x)
        rule.step(x, zeros_like(x), state)
        if not bool((x == before).all()):
            raise ConfigurationError(
                f"the model's parameter {again or self._unused[0]!r} got no gradient in step {self._moment}, "
                f"and parameter servers would move it all the same, by {rule!r}: let it require no gradient, "
                "leave weight decay and momentum out, or choose a distributed optimizer without servers, "
                "such as AllreduceSGD, which leaves it as it is"
            )

    def _unused_in(self, gradient: Any, part: slice) -> tuple[Slot, ...]:
        """The tensors, or pieces of them, in a part of x that no agent has a gradient of, by their marks."""
        found, names = [], frozenset(self._unused)
        for slot in self.slots:
            begin, end = max(slot.offset, part.start), min(slot.offset + slot.size, part.stop)
            if slot.name in names and begin < end and is_negative_zero(gradient[begin:end]):
                whole = end - begin == slot.size
                shape = slot.shape if whole else (end - begin,)
                found.append(Slot(slot.name, begin - part.start, shape))
        return tuple(found)

    def _state_of(self, part: slice) -> State:
        """The base optimizer's state of a part of the parameters."""
        x, own = self._executor.parameters, (part.start, part.stop)
        if own not in self._states:
            if self.base.whole and own != (0, len(x)):
                raise ConfigurationError(
                    f"{self.base!r} must see all parameters at once, but {self!r} updates them part by part: "
                    "choose an element-wise rule such as SGD or Adam, or AllreduceSGD"
                )
            self._states[own] = _checked(self.base, x, self.base.state_for(x[part], self.slots))
            self.base.begin_at(self._states[own], self._moment)
        return self._states[own]

    @final
    def settle(self) -> None:
        """Set self.x, and the state that is not trained, for an evaluation; called by all agents."""
        self.finish()
        executor = self._executor
        if self.buffer_policy != LocalBuffers():
            self._own_buffers = [copy_of(each) for each in (executor.buffers, *executor.counters)]
        self.buffer_policy.settle(self.communication, executor.buffers, executor.counters)

    @final
    def go_on(self) -> None:
        """Restore, after an evaluation, what a step needs; called before the step."""
        executor = self._executor
        for array, own in zip((executor.buffers, *executor.counters), self._own_buffers, strict=False):
            array[...] = own
        self._own_buffers = []
        self.resume()

    def __repr__(self) -> str:
        own = {name: getattr(self, name) for name in _hyperparameters(self)}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in own.items())})"


def instance_of(distributed: object) -> DistributedOptimizer:
    """The distributed optimizer that an experiment is given, made where it is a class."""
    if isinstance(distributed, DistributedOptimizer):
        return distributed
    if not (isinstance(distributed, type) and issubclass(distributed, DistributedOptimizer)):
        wanted = "a subclass of DistributedOptimizer, or an instance of one; AllreduceSGD does what DDP does"
        raise wrong_kind("distributed", distributed, wanted, DistributedOptimizer)
    try:
        return distributed()
    except TypeError as error:
        raise ConfigurationError(
            f"distributed={distributed.__name__} cannot be made: {error}; write a `step(self, batch)` and "
            "give an instance where it takes arguments"
        ) from error


def _hyperparameters(optimizer: DistributedOptimizer) -> tuple[str, ...]:
    """The names that `__init__` set: those that an instance has before it is bound."""
    names: tuple[str, ...] = vars(optimizer).get("_hyperparameters", tuple(vars(optimizer)))
    return tuple(name for name in names if not name.startswith("_"))


def _checked(rule: Optimizer, x: Any, state: State) -> State:
    """A rule's state; `ConfigurationError` for NumPy's arrays beside parameters of a framework."""
    for name, value in state.items():
        if isinstance(value, np.ndarray) and not isinstance(x, np.ndarray) and value.ndim:
            raise ConfigurationError(
                f"{rule!r}: its state {name!r} is an array of NumPy, and x is {type(x).__name__} of "
                f"{type(x).__module__}: make it in state(self, x) from x, as by 0 * x"
            )
    return state
