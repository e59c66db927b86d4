"""An nn.Module with the two methods of a GraphExecutor: called as it is, differentiated by autograd"""

import inspect
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, final

import torch
from torch import nn

from d5ray.frameworks.torch.library import Torch, chosen, tensor_of
from d5ray.frameworks.torch.model_calls import mean_and_weight
from d5ray.networks.device import Device
from d5ray.networks.events.event import GraphEvent
from d5ray.networks.executors.graph_executor import Array, Arrays, check_one_number
from d5ray.networks.executors.native_executor import LABELS, NativeExecutor, named_outputs, the_loss
from d5ray.operators.loss import Loss


@final
class TorchNativeExecutor(NativeExecutor):
    """The module itself, moved to the device; its inputs are called as the arguments of its `forward`."""

    def __init__(
        self,
        module: nn.Module,
        loss: Loss | None,
        device: Device,
        events: GraphEvent | Sequence[GraphEvent],
    ) -> None:
        library = Torch(chosen(device))
        self._put = library.put
        self.module = module.to(library.device)
        super().__init__(_arguments(module), library, loss, events)
        self._named = {**dict(module.named_parameters()), **dict(module.named_buffers())}

    @property
    def trained(self) -> tuple[str, ...]:
        return tuple(name for name, tensor in self.module.named_parameters() if tensor.requires_grad)

    def _run(self, inputs: Arrays, loss: str | None) -> dict[str, Any]:
        given = [self._put(inputs[name]) for name in self.inputs]
        self.module.train(loss is not None)
        mode: AbstractContextManager[Any] = torch.inference_mode() if loss is None else torch.enable_grad()
        with mode:
            outputs = named_outputs(self.module(*given), torch.is_tensor)
            if loss is not None:
                outputs[loss] = self._differentiated(outputs, inputs, loss)
        return outputs

    def _differentiated(self, outputs: dict[str, Any], inputs: Arrays, loss: str) -> torch.Tensor:
        own = self.loss
        compare = None
        if own is not None and LABELS in inputs:
            labels = self._put(inputs[LABELS])
            compare = lambda scores: mean_and_weight(own, own.torch(scores, labels), labels)[0]  # noqa: E731
        found: torch.Tensor = the_loss(outputs, loss, compare)
        check_one_number(loss, found.shape)
        names = self.trained
        parameters = [self._named[name] for name in names]
        gradients = torch.autograd.grad(found, parameters, allow_unused=True)
        self._gradients = dict(zip(names, gradients, strict=True))
        return found

    def _tensors(self) -> dict[str, torch.Tensor]:
        return self._named

    def _assign(self, tensor: torch.Tensor, value: Array) -> None:
        with torch.no_grad():
            tensor.copy_(tensor_of(value))


def _arguments(module: nn.Module) -> tuple[str, ...]:
    """The names of what `forward` must be given; "input" for what it takes any number of."""
    kinds = inspect.Parameter
    found = inspect.signature(module.forward).parameters.values()
    named = tuple(
        each.name
        for each in found
        if each.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD) and each.default is kinds.empty
    )
    return named or ("input",)
