"""What a distributed optimizer is: a `step` that speaks only to x, gradient, apply and communication."""

from abc import ABC, abstractmethod
from time import perf_counter_ns
from typing import Any, final

import numpy as np

from d5ray.distributed.communicator import Communicator
from d5ray.networks.executor import Executor
from d5ray.training.batch import Batch
from d5ray.training.optimizers import Optimizer


class DistributedOptimizer(ABC):
    """Level 3: subclass it, write `step`, and hand the class (or an instance) to an `Experiment`.

    One instance lives on every agent. `step` may use
      self.x               the agent's flat parameters (n,), an array of the framework; change it in place
      self.gradient(batch) the flat gradient (n,) at self.x; a buffer that the next call overwrites
      self.apply(g)        the base optimizer's own update of self.x
      self.communication   the `Communicator` of all agents
      self.learning_rate   of the base optimizer
      self.rng             a NumPy generator, different on every agent, equal for equal seeds
    A class attribute or `__init__` argument is a hyperparameter of the subclass.
    """

    _executor: Executor
    base: Optimizer
    communication: Communicator
    rng: np.random.Generator
    loss: float = float("nan")
    update_ns: int = 0

    @abstractmethod
    def step(self, batch: Batch) -> None:
        """One step of this agent on its share of the step's samples."""

    def start(self) -> None:  # noqa: B027 - most subclasses have nothing to do here
        """Called once on the agent before the first step, when self.x is set: make buffers here."""

    @final
    def bind(
        self, *, executor: Executor, base: Optimizer, communication: Communicator, rng: np.random.Generator
    ) -> None:
        """Give this instance what its step uses; called by the agent."""
        self._executor = executor
        self.base = base
        self.communication = communication
        self.rng = rng
        self._state = base.state(executor.parameters)
        self.start()

    @property
    def x(self) -> Any:
        """The flat parameters (n,). Assigning copies into the buffer that the model's tensors view."""
        return self._executor.parameters

    @x.setter
    def x(self, value: Any) -> None:
        parameters = self._executor.parameters
        if value is not parameters:
            parameters[...] = value

    @property
    def learning_rate(self) -> float:
        """The base optimizer's learning rate."""
        return self.base.learning_rate

    @final
    def gradient(self, batch: Batch) -> Any:
        """The flat gradient (n,) of the loss on this agent's samples at self.x, times the batch's weight.

        The weight is 1 but where a remainder gives agents shares of different size; with it the mean over
        the agents is the mean over the samples. An agent without samples gets zeros.
        """
        if len(batch.labels) == 0:
            self._executor.gradients[...] = 0
            self.loss = float("nan")
            return self._executor.gradients
        self.loss = self._executor.inference_and_backprop(batch.inputs, batch.labels)
        if batch.weight != 1.0:
            self._executor.gradients *= batch.weight
        return self._executor.gradients

    @final
    def apply(self, gradient: Any) -> None:
        """x ← the base optimizer's update of x by this flat gradient (n,)."""
        begin = perf_counter_ns()
        self.base.update(self._executor.parameters, gradient, self._state)
        self.update_ns += perf_counter_ns() - begin

    def __repr__(self) -> str:
        own = {k: v for k, v in vars(self).items() if k not in _BOUND and not k.startswith("_")}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in own.items())})"


_BOUND = frozenset({"base", "communication", "rng", "loss", "update_ns"})
