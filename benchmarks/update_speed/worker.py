"""What a process does that times update rules: d5ray's on the flat buffer, torch.optim's beside them"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.interleaved_timing import Timer, interleaved, timer
from benchmarks.update_speed.baselines import RulePair
from benchmarks.update_speed.metrics import NATIVE, OURS
from d5ray.errors import AgentError
from d5ray.frameworks.torch import build
from d5ray.frameworks.torch.library import chosen
from d5ray.kits.laboratory.comparisons.timing import Times
from d5ray.networks.device import CPUDevice, Device
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss
from d5ray.training.arrays import wait_for

VARIANTS = ("foreach", "fused")  # of torch.optim, where it has them
UPDATE, STEP = "update", "step"
CLASSES = 10
CHECKED_STEPS = 3
TOLERANCE = 1e-2  # of the parameters after them, relative to how far they moved; L-BFGS divides noise
Found = dict[tuple[str, str, str], Times]  # by what was timed, rule and side


@final
@dataclass(frozen=True)
class RuleTimes:
    """The work of the one process: every rule on one network, updates and whole steps for `seconds` each."""

    model: str
    sample_shape: tuple[int, ...]
    pairs: tuple[RulePair, ...]
    batch_size: int
    threads: int
    seconds: float
    seed: int
    device: Device = CPUDevice()  # noqa: RUF009 - frozen data

    def __call__(self, rank: int) -> Found:
        found: Found = {}
        for pair in self.pairs:
            self.check(pair)
            if pair.rule.elementwise:
                updates = dict(self._updates(pair))
                found |= {
                    (UPDATE, pair.name, side): t for side, t in interleaved(updates, self.seconds).items()
                }
            steps = dict(self._steps(pair))
            found |= {(STEP, pair.name, side): t for side, t in interleaved(steps, self.seconds).items()}
        return found

    def check(self, pair: RulePair) -> None:
        """Raise `AgentError` unless both make the same of the network in a few steps."""
        (_, ours), (_, theirs) = self.sides(pair)
        start = ours.parameters()
        for _ in range(CHECKED_STEPS):
            ours.step()
            theirs.step()
        apart = np.linalg.norm(ours.parameters() - theirs.parameters())
        if not apart <= TOLERANCE * np.linalg.norm(theirs.parameters() - start):
            raise AgentError(f"{pair.rule!r} and torch.optim.{pair.native} disagree: nothing is measured")

    def sides(self, pair: RulePair) -> Iterator[tuple[str, "Side"]]:
        """d5ray's and torch.optim's, on networks with the same parameters."""
        yield OURS, Ours(self, pair)
        yield NATIVE, Theirs(self, pair)

    def module(self) -> nn.Module:
        return build.module(
            self.model,
            {},
            self.sample_shape,
            CLASSES,
            seed=self.seed,
            threads=self.threads,
        )

    def batch(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Inputs (batch, *shape) and labels (batch,), random."""
        rng = np.random.default_rng(self.seed)
        inputs = rng.standard_normal((self.batch_size, *self.sample_shape), dtype=np.float32)
        return inputs, rng.integers(0, CLASSES, self.batch_size)

    def _steps(self, pair: RulePair) -> Iterator[tuple[str, Timer]]:
        for name, side in self.sides(pair):
            yield name, timer(side.step)

    def _updates(self, pair: RulePair) -> Iterator[tuple[str, Timer]]:
        """With the variants of torch.optim that there are for this rule."""
        for name, side in self.sides(pair):
            side.step()  # from here on there is a gradient
            yield name, timer(side.update, side.done)
        for variant in VARIANTS:
            try:
                side = Theirs(self, pair, **{variant: True})
                side.step()
            except (TypeError, RuntimeError):
                continue  # this rule has it not, or not on this device
            yield variant, timer(side.update, side.done)


@final
class Ours:
    """d5ray's executor and rule, on flat buffers."""

    def __init__(self, work: RuleTimes, pair: RulePair) -> None:
        self._rule, self._batch = pair.rule, work.batch()
        self._executor = build.executor(
            work.module(), work.sample_shape, CLASSES, SoftmaxCrossEntropyLoss(), work.device
        )
        self.done = partial(wait_for, self._executor.parameters)
        self._state = pair.rule.state_for(self._executor.parameters, self._executor.slots)

    def step(self) -> None:
        self._executor.inference_and_backprop(*self._batch)
        self.update()

    def update(self) -> None:
        self._rule.step(self._executor.parameters, self._executor.gradients, self._state)

    def parameters(self) -> np.ndarray[Any, Any]:
        return self._executor.numpy_parameters()


@final
class Theirs:
    """The loop that a user of PyTorch writes."""

    def __init__(self, work: RuleTimes, pair: RulePair, **variant: bool) -> None:
        device = chosen(work.device)
        self._module = work.module().to(device)
        self.done = partial(wait_for, next(self._module.parameters()))
        kind: Any = getattr(torch.optim, pair.native)
        self._optimizer: torch.optim.Optimizer = kind(self._module.parameters(), **pair.settings, **variant)
        inputs, labels = work.batch()
        self._inputs, self._labels = (torch.from_numpy(each).to(device) for each in (inputs, labels))

    def step(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        loss = cross_entropy(self._module(self._inputs), self._labels)
        loss.backward()  # type: ignore[no-untyped-call]
        self.update()
        loss.item()

    def update(self) -> None:
        if isinstance(self._optimizer, torch.optim.LBFGS):
            self._optimizer.step(lambda: 0.0)  # type: ignore[no-untyped-call]  # the gradient is there
        else:
            self._optimizer.step()

    def parameters(self) -> np.ndarray[Any, Any]:
        with torch.no_grad():
            return torch.cat([tensor.reshape(-1) for tensor in self._module.parameters()]).cpu().numpy()


Side = Ours | Theirs
