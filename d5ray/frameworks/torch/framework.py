"""PyTorch, for checking and measuring operators; importing this imports torch"""

from collections.abc import Sequence
from typing import Any, ClassVar, Self, final

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from d5ray.errors import ConfigurationError
from d5ray.operators.custom.custom_operator import CustomOp
from d5ray.operators.framework import Call, Framework, Numbers, Pullback, Tensor, as_tuple, lacking
from d5ray.operators.nodes.node_context import Kernel, NodeContext
from d5ray.operators.tensors.tensor_descriptor import element_type
from d5ray.ops.custom.torch_operation import TorchOperation
from d5ray.ops.torch import FACTORIES


@final
class TorchFramework(Framework):
    """Tensors on one device, differentiated by autograd."""

    name: ClassVar[str] = "torch"

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @classmethod
    def of(cls, arrays: Sequence[Tensor]) -> Self:
        return cls(arrays[0].device)

    @classmethod
    def on(cls, device: str) -> Self:
        if device == "cuda" and not torch.cuda.is_available():
            raise ConfigurationError("PyTorch finds no GPU: take --device cpu, or a PyTorch built for CUDA")
        return cls(torch.device(device))

    @property
    def version(self) -> str:
        return str(torch.__version__)

    @property
    def threads(self) -> int:
        return torch.get_num_threads() if self.device.type == "cpu" else 1

    def use_threads(self, count: int) -> None:
        torch.set_num_threads(count)

    def copying(self, source: Tensor) -> Call:
        target = torch.empty_like(source)
        return lambda: target.copy_(source)

    def array(self, values: Numbers) -> Tensor:
        if values.dtype.name == "bfloat16":
            return torch.tensor(values.astype(np.float32), dtype=torch.bfloat16, device=self.device)
        return torch.tensor(values, device=self.device)

    def numbers(self, array: Tensor) -> Numbers:
        plain = array.detach().cpu()
        if plain.dtype == torch.bfloat16:
            return np.array(plain.float().numpy(), element_type("bfloat16"))
        return np.array(plain.numpy())

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def linearized(
        self, operator: Any, inputs: Sequence[Numbers | None]
    ) -> tuple[tuple[Numbers, ...], Pullback]:
        leaves = [None if each is None else self.array(each) for each in inputs]
        for leaf in leaves:
            if leaf is not None and leaf.is_floating_point():
                leaf.requires_grad_()
        with torch.enable_grad():
            outputs = as_tuple(operator(*leaves))
        wanted = [at for at, leaf in enumerate(leaves) if leaf is not None and leaf.requires_grad]

        def pullback(gradients: Sequence[Numbers | None]) -> list[Numbers | None]:
            live = [
                (output, self.array(each).to(output.dtype))
                for output, each in zip(outputs, gradients, strict=True)
                if each is not None and output.requires_grad
            ]
            found: list[Numbers | None] = [None] * len(leaves)
            if live and wanted:
                roots, cotangents = zip(*live, strict=True)
                sources: list[Any] = [leaves[at] for at in wanted]
                slopes = torch.autograd.grad(roots, sources, cotangents, retain_graph=True, allow_unused=True)
                for at, slope in zip(wanted, slopes, strict=True):
                    found[at] = None if slope is None else self.numbers(slope)
            return found

        return tuple(map(self.numbers, outputs)), pullback

    def custom(self, operator: CustomOp) -> TorchOperation:
        return TorchOperation(operator)

    def built(self, context: NodeContext) -> Kernel:
        if context.node.type not in FACTORIES:
            raise lacking(self.name, context)
        return FACTORIES[context.node.type](context)

    def inference(self, function: Kernel, inputs: Sequence[Tensor]) -> Call:
        def call() -> object:
            with torch.inference_mode():
                return function(*inputs)

        return call

    def training(self, function: Kernel, inputs: Sequence[Tensor], gradient: Tensor) -> Call:
        leaves = [
            each.detach().requires_grad_() if each is not None and each.is_floating_point() else each
            for each in inputs
        ]
        owned = function.parameters() if isinstance(function, torch.nn.Module) else ()
        tensors = [*(each for each in leaves if each is not None), *owned]
        wanted = [each for each in tensors if each.requires_grad]

        def call() -> object:
            output = as_tuple(function(*leaves))[0]
            return torch.autograd.grad(output, wanted, gradient, allow_unused=True)

        return call

    def counted_flops(self, call: Call) -> int:
        with FlopCounterMode(display=False) as counter:
            call()
        return int(counter.get_total_flops())
