"""The level-1 executor of PyTorch: a native module whose tensors are views into two flat buffers."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch import nn

from d5ray.errors import ConfigurationError
from d5ray.frameworks.torch.library import Torch, numbers
from d5ray.frameworks.torch.model_calls import (
    called,
    check_differentiable,
    output_and_loss,
    right_ones,
    scores_of,
)
from d5ray.frameworks.torch.modes import evaluating
from d5ray.frameworks.torch.module_buffers import ModuleBuffers
from d5ray.frameworks.torch.module_values import ModuleValues
from d5ray.frameworks.torch.network_module import own_names
from d5ray.frameworks.torch.precision import LossScale, PassPrecision
from d5ray.frameworks.torch.shared_memory import check_memory
from d5ray.frameworks.torch.trained_tensors import TrainedTensors, learning_parts, reached_from
from d5ray.networks.executors.evaluation import Judged, evaluated
from d5ray.networks.executors.executor import Evaluation, Executor, FlatExecutor, now_of
from d5ray.networks.executors.flat_buffers import FlatBuffers, by_name
from d5ray.networks.executors.gradient_buckets import OnReady
from d5ray.networks.executors.graph_executor import PASS_APART
from d5ray.networks.executors.trees import mapped, rows, unpacked
from d5ray.operators.loss import Loss

if TYPE_CHECKING:
    from d5ray.frameworks.torch.compiled import CompiledForward

SEEDS = 2**64


@final
class TorchExecutor(Executor):
    """Runs an `nn.Module` as it is; nothing is converted, and no hook is left in it.

    precision: of training passes, for which the module is prepared. compiled: the module, as those call it.
    differentiates: whether its forward pass needs gradients, as that of forces from an energy does.
    """

    parameters: torch.Tensor  # (n,)
    gradients: torch.Tensor  # (n,)
    buffers: torch.Tensor  # (m,)
    counters: tuple[torch.Tensor, ...]
    unused, released = now_of("_trained.unused"), now_of("_trained.released")
    moving, frozen_statistics = now_of("_buffers.moving"), now_of("_buffers.frozen_statistics")

    def __init__(
        self,
        module: nn.Module,
        loss: Loss,
        device: torch.device,
        precision: PassPrecision | None = None,
        compiled: "CompiledForward | None" = None,
        *,
        differentiates: bool = False,
    ) -> None:
        self.module, self.loss, self.device = module, loss, device
        self._precision = precision or PassPrecision("float32", device)
        self._forward: Callable[..., Any] = compiled or module
        self._compiled = compiled
        self._library = Torch(device)
        self._on_cpu, self._synchronize = self._library.on_host, self._library.synchronize
        modules = {"": module} | learning_parts(loss)
        self._trained = TrainedTensors(modules)
        kind = next(iter(self._trained.real.values())).dtype
        self._buffers = ModuleBuffers(module, kind)
        check_memory(modules.values(), self._trained.named | self._buffers.floating)
        self._hold(self._laid())
        self._buffers.note_versions()
        self.weighs, self._differentiates = loss.weighted, differentiates
        self.given: Mapping[int, str] = {}  # the names of the user's own parameters, until the first pass
        self._generator = self._library.generator
        self._first_seed = 0  # of what the network draws in training,
        self._passes: int = 0  # the passes until now
        self._counting: Loss | None = None
        self.values = ModuleValues(module, loss, self._trained.named)

    def _laid(self) -> FlatBuffers:
        """Flat buffers of what is trained now."""
        counters = self._buffers.counters
        return FlatBuffers(self._trained.real, self._buffers.floating, self._library, counters=counters)

    def _hold(self, holder: FlatBuffers | FlatExecutor) -> None:
        super()._hold(holder)
        values, gradients = self._flat.parameter_views, self._flat.gradient_views
        self._trained.lie_in(self.slots, values, gradients, self.gradients)

    def adopt(self) -> None:
        self._trained.adopt()

    def visit_fixed(self, visit: Callable[[str, Any], None]) -> None:
        self._trained.visit_fixed(visit)

    def release(self, names: Collection[str]) -> None:
        self._trained.release(names)

    def forbid_adopting(self, holder: str) -> None:
        self._trained.holder = holder

    def take_released(self) -> None:
        self._trained.take_released()
        self._buckets = None
        self._hold(self._laid())

    def draw_from(self, seed: int, rank: int) -> None:
        self._passes = 0
        torch.manual_seed(seed)  # of what is drawn before the first pass
        self._first_seed = int(np.random.SeedSequence([seed, rank]).generate_state(1, np.uint64)[0])

    @property
    def next_seed(self) -> int:
        """The seed of PyTorch's generator in the next training pass."""
        return self._seed_of(self._passes + 1)

    def _seed_of(self, training_pass: int) -> int:
        return (self._first_seed + training_pass * PASS_APART) % SEEDS

    def inference(self, inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        with self._evaluating():
            scores = scores_of(called(self.module, self._tensors_of(inputs)))
        return numbers(scores.detach())

    def inference_and_backprop(
        self, inputs: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], on_ready: OnReady | None = None
    ) -> float:
        self._passes += 1
        if (compiled := self._compiled) is not None and compiled.due(len(labels)):
            self._check_compiled(compiled, inputs, labels)
        if (scale := self._precision.scale) is not None:
            return self._scaled_pass(inputs, labels, on_ready, scale)
        return self._pass(inputs, labels, on_ready)

    def _pass(self, inputs: Any, labels: Any, on_ready: OnReady | None, scale: float = 1.0) -> float:
        """The loss of a pass, whose gradients are those of scale times it."""
        trained = self._trained
        trained.begin_pass(self.parameters, self.gradients)
        begin = perf_counter_ns()
        self._generator.manual_seed(self._seed_of(self._passes))
        with torch.enable_grad(), self._precision.computing():
            given, truth = self._tensors_of(inputs), self.truth_of(labels)
            _, loss, self.weight = output_and_loss(self._trained_output, self.loss, given, truth)
        check_differentiable(loss, self.loss)
        self.check_own(loss)
        self._synchronize()
        middle = perf_counter_ns()
        elsewhere = 0
        scaled = loss if scale == 1.0 else loss.float() * scale
        with self._precision.differentiating():
            if on_ready is None:
                torch.autograd.backward(scaled)
            else:
                elsewhere = self._announcing_backward(scaled, on_ready)
        if on_ready is None:
            trained.adopt()
            trained.gather(scaled)
        trained.end_pass(self.parameters)
        self._synchronize()
        self.forward_ns += middle - begin
        self.backward_ns += perf_counter_ns() - middle - elsewhere
        self._buffers.adopt()
        return loss.item()

    def check_own(self, loss: torch.Tensor) -> None:
        """Raise `ConfigurationError` where a loss follows from the given model, not from the copy; once."""
        if self.given:
            name = next((self.given[each] for each in reached_from(loss) if each in self.given), None)
            if name is not None:
                raise ConfigurationError(
                    f"the model's forward pass or its loss uses {name!r} of the model that was given, and "
                    "agents train copies of it: let forward return what the loss needs, or let the loss be a "
                    "function or an object that holds the model, instead of a global variable"
                )
            self.given = {}

    def _trained_output(self, *given: Any, **named: Any) -> Any:
        return self._precision.output(self._forward(*given, **named))

    def _scaled_pass(self, inputs: Any, labels: Any, on_ready: OnReady | None, scale: LossScale) -> float:
        """A pass whose gradients are finite, which is done again until they are; announced afterwards."""
        restore = self._restorer()
        while not scale.fits(self.gradients, loss := self._pass(inputs, labels, None, scale.value)):
            restore()
        self.gradients.mul_(1 / scale.value)
        scale.grow()
        if on_ready is not None:
            self._announcer(on_ready).finish()
        return loss

    def _check_compiled(self, compiled: "CompiledForward", inputs: Any, labels: Any) -> None:
        """Compare the gradients of this pass with those of the module as it is; nothing is changed."""
        restore, precision = self._restorer(), self._precision
        scale = 1.0 if precision.scale is None else precision.scale.value
        found = []
        for forward in (self.module, compiled):
            self._forward = forward
            self._pass(inputs, labels, None, scale)
            restore()
            found.append(self.gradients.clone())
        compiled.compare(self.slots, *found, half=precision.is_half)

    def _restorer(self) -> Callable[[], None]:
        """Gives the state that is not trained the values that it has now, again."""
        state = (self.buffers, *self.counters)
        before = [each.clone() for each in state]

        def restore() -> None:
            for each, value in zip(state, before, strict=True):
                each.copy_(value)

        return restore

    def _announcing_backward(self, loss: torch.Tensor, on_ready: OnReady) -> int:
        """The backward pass with a hook on every parameter; returns the nanoseconds spent in on_ready."""
        announcer, trained = self._announcer(on_ready), self._trained
        trained.adopt()  # which moves nothing that is announced
        missing = set(range(len(self.slots)))

        def arrived(slot: int) -> None:
            missing.discard(slot)
            trained.gather_one(slot)
            announcer.arrived(slot)

        hooks = [
            tensor.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                lambda _, slot=slot: arrived(slot)
            )
            for slot, tensor in enumerate(trained.tensors)
            if tensor.requires_grad  # it may have been frozen since
        ]
        try:
            torch.autograd.backward(loss)
        finally:
            for hook in hooks:
                hook.remove()
        trained.note_unused(missing)
        announcer.finish()
        return announcer.nanoseconds

    def counting(self, loss: Loss, inputs: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> Loss:
        if loss.ignored is None or not loss.sees_output or labels.ndim < 2 or labels.dtype.kind != "i":
            return loss
        if self._counting is None:
            first = np.full_like(labels[:1], loss.ignored)
            first[:, 0] = 0  # the only label that is not ignored
            seen = 1.0
            with self._evaluating(), suppress(Exception):  # which the pass itself tells of
                seen = self._judged(rows(inputs, slice(1)), first)[0]
            self._counting = copy(loss)
            self._counting.shifts = not np.isfinite(seen) or seen == 0.0  # a mean over no label
        return self._counting

    def evaluate(self, inputs: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> Evaluation:
        loss = self.counting(self.loss, inputs, labels)
        with self._evaluating():
            return evaluated(self._judged, loss, inputs, labels)

    def _judged(self, inputs: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> Judged:
        truth = self.truth_of(labels)
        output, loss, weight = output_and_loss(self.module, self.loss, self._tensors_of(inputs), truth)
        right = right_ones(scores_of(output), truth, self.loss) if self.loss.classifies else 0
        return loss.item(), right, weight

    def numpy_parameters(self) -> np.ndarray[Any, Any]:
        self._adopt_for_reading()
        return super().numpy_parameters()

    def _adopt_for_reading(self) -> None:
        """Adopt what can be; an error is for the next step, and who reads gets the last values."""
        with suppress(ConfigurationError):
            self.adopt()

    def named_state(self) -> dict[str, np.ndarray[Any, Any]]:
        self._buffers.adopt()
        return {name: self._library.get(buffer) for name, buffer in self._buffers.named.items()}

    def state_dict(self, parameters: np.ndarray[Any, Any] | None = None) -> dict[str, np.ndarray[Any, Any]]:
        self._adopt_for_reading()
        self._buffers.adopt()
        own = self._library.host(self.parameters)
        flat = own if parameters is None else np.asarray(parameters, own.dtype)
        names = {id(tensor): name for name, tensor in self._trained.named.items()}
        values, called = by_name(flat, self.slots), own_names(self.module)
        found = {}
        for name, tensor in self.module.state_dict(keep_vars=True).items():
            if isinstance(tensor, torch.Tensor) and name in called:
                trained = names.get(id(tensor))
                value = self._library.host(tensor.detach()) if trained is None else values[trained]
                if trained is not None and tensor.is_complex():
                    value = np.ascontiguousarray(value).view(np.result_type(value, np.complex64))[..., 0]
                found[called[name]] = np.array(value)
        return found

    def random_state(self) -> np.ndarray[Any, Any]:
        states = [torch.tensor([self._passes]).view(torch.uint8), torch.get_rng_state()]
        if not self._on_cpu:
            states.append(torch.cuda.get_rng_state(self.device))
        scale = self._precision.scale
        own = [] if scale is None else [scale.state]
        return np.concatenate([*own, *(state.numpy() for state in states)])

    def set_random_state(self, state: np.ndarray[Any, Any]) -> None:
        if (scale := self._precision.scale) is not None:
            scale.state, state = state[:16], state[16:]
        passes, own, other = np.split(state.copy(), np.cumsum([8, len(torch.get_rng_state())]))
        self._passes = int(passes.view(np.int64)[0])
        torch.set_rng_state(torch.from_numpy(own))
        if not self._on_cpu:
            torch.cuda.set_rng_state(torch.from_numpy(other), self.device)

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Evaluation mode without gradients; afterwards every part is in the mode it was in before.

        It is no inference mode, whose tensors a model that keeps some could not train with.
        """
        with self._buffers.evaluating(), evaluating(self.module):
            self._trained.adopt()  # what its parts did on entering the mode
            with torch.set_grad_enabled(self._differentiates):
                yield
        self._trained.adopt()

    def truth_of(self, labels: np.ndarray[Any, Any]) -> Any:
        """The labels as a loss gets them: a tensor, or a tree of tensors."""
        return self._tensors_of(unpacked(labels))

    def _tensors_of(self, inputs: Any) -> Any:
        return self._tensor(inputs) if isinstance(inputs, np.ndarray) else mapped(self._tensor, inputs)

    def _tensor(self, array: np.ndarray[Any, Any]) -> torch.Tensor:
        if not array.flags.writeable:  # views of Ray's object store are not; PyTorch knows no such tensor
            array = array.copy()
        tensor = self._precision.sample(torch.from_numpy(array))
        return tensor if self._on_cpu else tensor.to(self.device)
