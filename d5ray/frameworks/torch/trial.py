"""Trial of a PyTorch module before it trains: what it takes, what it gives, and what its first pass makes"""

import traceback
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, final

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from d5ray.errors import ConfigurationError, D5Error, first_line
from d5ray.frameworks.torch.copying import copied
from d5ray.frameworks.torch.executor import TorchExecutor
from d5ray.frameworks.torch.model_calls import called, check_differentiable, mean_and_weight, scores_of
from d5ray.frameworks.torch.modes import evaluating
from d5ray.frameworks.torch.precision import PassPrecision
from d5ray.networks.executors.trees import is_inner, leaves, mapped
from d5ray.networks.layers.layers import Shape
from d5ray.operators.loss import Loss

# They say nothing about what the model takes.
OF_THE_DEVICE: Final = (torch.OutOfMemoryError, torch.AcceleratorError)
OF_THE_MODEL: Final = (RuntimeError, ValueError, TypeError, IndexError)
MOST_BYTES: Final = 2**28  # of parameters that are copied to be tried
WITHOUT_GRADIENTS: Final = ("does not require grad", "does not have a grad_fn")


@final
@dataclass(frozen=True)
class ModuleFacts:
    """A module's facts by a trial: the shape of its scores, if known, and whether a pass needs gradients."""

    shape: tuple[int, ...] | None
    differentiates: bool = False


@final
class ModuleTrial:
    """A pass of two samples, of numbers, or of tokens where a model takes nothing else.

    It is a copy's, so that the model itself has not been called when training begins; lazy modules alone get
    their parameters by a pass of their own.
    """

    def __init__(
        self, network: nn.Module, loss: Loss, precision: PassPrecision, device: torch.device
    ) -> None:
        self._network, self._loss, self._precision, self._device = network, loss, precision, device

    def found(self, sample_shape: Any) -> ModuleFacts:
        """The model's scores; for samples of several arrays perhaps none, since shapes do not tell types, and
        for a model that is given labels too.

        Raises `ConfigurationError` where the model does not take such samples.
        """
        several = is_inner(sample_shape)
        failures = []
        for kind in (np.float32, np.int64):
            before = torch.get_rng_state()
            try:
                return self._passed(mapped(partial(_zeros, kind), sample_shape))
            except OF_THE_DEVICE:
                raise
            except OF_THE_MODEL as error:
                failures.append(error)
            finally:
                torch.set_rng_state(before)
        if (several or self._loss.takes_labels) and not self._is_lazy:
            return ModuleFacts(None)
        tokens = any(isinstance(part, (nn.Embedding, nn.EmbeddingBag)) for part in self._network.modules())
        raise self._refused(sample_shape, failures[tokens]) from failures[tokens]

    def _passed(self, samples: Any) -> ModuleFacts:
        given = mapped(lambda each: self._precision.sample(torch.from_numpy(each).to(self._device)), samples)
        if self._is_lazy:
            _scores(self._network, given, differentiates=False)
        for differentiates in (False, True):
            try:
                return ModuleFacts(
                    tuple(_scores(_copied(self._network), given, differentiates=differentiates).shape),
                    differentiates,
                )
            except RuntimeError as error:
                if differentiates or not any(words in str(error) for words in WITHOUT_GRADIENTS):
                    raise
        raise AssertionError("one of the two is returned or raised")

    @property
    def _is_lazy(self) -> bool:
        return any(is_lazy(each) for each in (*self._network.parameters(), *self._network.buffers()))

    def _refused(self, sample_shape: Any, why: Exception) -> ConfigurationError:
        kinds = {each.dtype for each in self._network.parameters() if each.is_floating_point()}
        if self._precision.name == "float32" and kinds and torch.float32 not in kinds:
            shown = ", ".join(sorted(map(str, kinds)))
            return ConfigurationError(
                f"the model's parameters are of {shown}, and samples are torch.float32, which it does not "
                f"take ({why}): set precision='float64', which computes in that type, convert the model with "
                ".float(), or its inputs in forward"
            )
        return ConfigurationError(f"the model does not take samples of shape {sample_shape}: {why}")


def check_alone(executor: Any, agents: int, *, one_model: bool) -> None:
    """Raise `ConfigurationError` for a part of a model that needs PyTorch's process groups.

    one_model: all have equal weights after every step; so also for a part that each agent's samples change.
    """
    if agents > 1:
        for name, part in _torch_executor(executor).module.named_modules():
            if isinstance(part, nn.SyncBatchNorm):
                raise ConfigurationError(
                    f"the model's part {name!r} is a SyncBatchNorm, which finds no process group "
                    f"of PyTorch's with {agents} agents and would take its own samples' statistics: use "
                    "BatchNorm, GroupNorm, or one agent"
                )
            if one_model and isinstance(part, (nn.Embedding, nn.EmbeddingBag)) and part.max_norm is not None:
                raise ConfigurationError(
                    f"the model's part {name!r} has max_norm={part.max_norm}, by which a pass changes the "
                    f"weights of the tokens that it meets, so that {agents} agents would not keep one model: "
                    "scale what the embedding gives in forward, use one agent, or a rule whose agents have "
                    "models of their own, such as DPSGD"
                )


def try_batch(executor: Any, inputs: Any, labels: np.ndarray[Any, Any]) -> None:
    """Let an executor's model and loss take a batch, and differentiate; the executor is of no use afterwards.

    The model is in evaluation mode, but for a normalization of a single sample, which fails in training mode.
    Raises `ConfigurationError` that names the part.
    """
    executor = _torch_executor(executor)
    module, loss = executor.module, executor.loss
    samples, truth = executor._tensors_of(inputs), executor.truth_of(labels)
    batch = f"a batch of {len(labels)} sample{'s' if len(labels) > 1 else ''}"
    normalizes = len(labels) == 1 and any(
        isinstance(part, _BatchNorm) and part.training for part in module.modules()
    )
    try:
        more = {"labels": truth} if loss.takes_labels else {}
        with nullcontext() if normalizes else evaluating(module):
            output = called(module, samples, **more)
        scores = output if loss.sees_output else scores_of(output)
    except (*OF_THE_DEVICE, D5Error):
        raise
    except Exception as error:
        remedy = "mend its forward pass"
        if isinstance(error, TypeError) and is_inner(inputs):
            parts = "by the names " + ", ".join(inputs) if isinstance(inputs, Mapping) else "by position"
            remedy += f", which is given the {len(inputs)} parts of a sample {parts}"
        if normalizes:
            remedy = (
                "take a batch_size that leaves no single sample at an epoch's end, or leave samples out; "
                "BatchNorm needs two"
            )
        raise failed(f"the model, a {type(module).__name__}, fails with {batch}", error, remedy) from error
    try:
        found = loss.torch(scores, truth)
    except (*OF_THE_DEVICE, D5Error):
        raise
    except Exception as error:
        shape = tuple(scores.shape) if isinstance(scores, torch.Tensor) else type(scores).__name__
        labelled = ", ".join(
            f"labels{place} {tuple(each.shape)} of {each.dtype}" for place, each in leaves(truth)
        )
        what = f"the loss, {loss!r}, fails with an output {shape} and {labelled}"
        raise failed(what, error, "mend it, or give labels that it takes") from error
    mean, _ = mean_and_weight(loss, found, truth)
    check_differentiable(mean, loss)
    executor.check_own(mean)


def _torch_executor(executor: Any) -> TorchExecutor:
    while not isinstance(executor, TorchExecutor):
        executor = executor.inner
    return executor


def failed(what: str, error: Exception, remedy: str) -> ConfigurationError:
    """The error for a part of the user's that raised another one, with the end of its traceback."""
    text = "".join(traceback.format_exception(error, limit=-3)).rstrip()
    return ConfigurationError(f"{what}: {type(error).__name__}: {first_line(error)}: {remedy}\n{text}")


def _scores(network: nn.Module, given: Any, *, differentiates: bool) -> torch.Tensor:
    with evaluating(network), torch.set_grad_enabled(differentiates):
        return scores_of(called(network, given))


def _copied(network: nn.Module) -> nn.Module:
    """A copy of a model, if not of large parameters; the model itself where it cannot be copied."""
    parameters = list(network.parameters())
    large = sum(each.nbytes for each in parameters) > MOST_BYTES
    try:
        copy: nn.Module = copied(network, kept=parameters if large else ())[0]
    except ConfigurationError:
        return network
    return copy


def _zeros(kind: Any, shape: Shape) -> np.ndarray[Any, Any]:
    return np.zeros((2, *shape), kind)
