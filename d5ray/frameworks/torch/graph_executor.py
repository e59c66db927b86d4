"""The executor of a Network under PyTorch: code that is written once, differentiated by autograd"""

from collections.abc import Callable, Iterable, Sequence
from time import perf_counter_ns
from typing import final

import numpy as np
import torch

from d5ray.frameworks.torch.accumulator import TorchAccumulator
from d5ray.frameworks.torch.graph import Code, code_of, graph
from d5ray.frameworks.torch.library import Torch, array_of, chosen, plain_tensor_of, tensor_of
from d5ray.frameworks.torch.network_module import NetworkTensors
from d5ray.networks.device import CPUDevice, Device
from d5ray.networks.events.event import GraphEvent
from d5ray.networks.events.observer import Observer
from d5ray.networks.executors.graph_executor import Array, Arrays, GraphExecutor, Run, check_one_number
from d5ray.networks.executors.plan import Plan
from d5ray.networks.network import Network
from d5ray.operators.collectives import Collectives
from d5ray.ops.torch.types import is_plain

Compiler = Callable[[Code], Code]

# Operators whose output may lie in the memory of an input.
ALIASING = frozenset({
    "Cast", "CastLike", "Dropout", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split",
    "Squeeze", "Transpose", "Unsqueeze", "Trilu", "Sum", "Max", "Min", "Mean", "Concat",
})  # fmt: skip


@final
class TorchGraphExecutor(GraphExecutor):
    """`tensors` is a module that holds parameters, constants and state under the network's names.

    compiler: what makes quicker code of the code that is written, such as `torch.compile`.
    """

    def __init__(
        self,
        network: Network,
        device: Device = CPUDevice(),  # noqa: B008 - frozen data
        events: GraphEvent | Sequence[GraphEvent] = (),
        *,
        trained: Iterable[str] | None = None,
        seed: int = 0,
        collectives: Collectives | None = None,
        compiler: Compiler | None = None,
    ) -> None:
        library = Torch(chosen(device))
        self._torch_device, self._on_cpu = library.device, library.on_host
        self._synchronize, self._generator = library.synchronize, library.generator
        self._compiler = compiler
        self.tensors: NetworkTensors | None = None
        super().__init__(network, library, device, events, trained, seed, collectives)

    def _build(self, made: Plan, loss: str | None, observer: Observer | None) -> Run:
        tensors = self._tensors()
        own = graph(
            self.network,
            made,
            tensors.places,
            evaluating=loss is None,
            observer=observer,
            collectives=self.collectives,
        )
        code = code_of(own, tensors)
        if self._compiler is not None and observer is None:
            code = self._compiler(code)
        given = tuple((name, self._put_of(name)) for name in made.inputs)
        makers = {name: node.type for _, node in made.nodes for name in node.outputs}
        wanted = tuple((name, self._get_of(name, makers.get(name, "Identity"))) for name in made.wanted)

        def infer(inputs: Arrays) -> dict[str, Array]:
            with torch.inference_mode():
                found = code(tensors, *[put(inputs[name]) for name, put in given])
                return {name: get(value) for (name, get), value in zip(wanted, found, strict=True)}

        if loss is None:
            return infer
        place = made.wanted.index(loss)
        parameters = tuple(tensors.tensor(name) for name in self._trained)

        def train(inputs: Arrays) -> dict[str, Array]:
            begin = perf_counter_ns()
            for parameter in parameters:
                parameter.grad = None
            with torch.enable_grad():
                found = code(tensors, *[put(inputs[name]) for name, put in given])
                value = found[place]
                if value.numel() != 1:
                    check_one_number(loss, value.shape)
                self._synchronize()
                middle = perf_counter_ns()
                torch.autograd.backward(value)
            self._synchronize()
            self.forward_ns += middle - begin
            self.backward_ns += perf_counter_ns() - middle
            return {name: get(value.detach()) for (name, get), value in zip(wanted, found, strict=True)}

        return train

    def _put_of(self, name: str) -> Callable[[Array], torch.Tensor]:
        """The function that makes tensors of arrays for this input: PyTorch's own where that is enough."""
        if not self._on_cpu:
            return lambda array: tensor_of(array).to(self._torch_device)
        return plain_tensor_of if is_plain(self.network.inputs[name].dtype) else tensor_of

    def _get_of(self, name: str, maker: str) -> Callable[[torch.Tensor], Array]:
        """The function that makes arrays of tensors for this output, which such an operator makes."""
        known = self.network.descriptors.get(name)
        kind = None if known is None else known.dtype
        if maker in ALIASING:
            return lambda tensor: np.array(array_of(tensor, kind))
        if self._on_cpu and kind is not None and is_plain(kind):
            return torch.Tensor.numpy
        return lambda tensor: array_of(tensor, kind)

    def accumulator(self) -> TorchAccumulator:
        return TorchAccumulator(self._take_gradients)

    def _take_gradients(self) -> dict[str, torch.Tensor | None]:
        """The gradients of the last pass, which nobody else has from now on."""
        tensors, taken = self._tensors(), {}
        for name in self._trained:
            parameter = tensors.tensor(name)
            taken[name], parameter.grad = parameter.grad, None
        return taken

    def _tensors(self) -> NetworkTensors:
        if self.tensors is None:
            self.tensors = NetworkTensors(self.network, self._trained).to(self._torch_device)
        return self.tensors

    def _load(self, name: str, value: Array) -> None:
        tensors = self._tensors()
        if name not in tensors.places:
            tensors.adopt(self.network)
            tensors.to(self._torch_device)
        tensors.put(name, value)

    def _value(self, name: str) -> Array:
        return self._tensors().value(name)

    def _gradient(self, parameter: str) -> Array:
        tensor = self._tensors().tensor(parameter)
        return np.array(array_of(torch.zeros_like(tensor) if tensor.grad is None else tensor.grad))

    def _seed_pass(self, seed: int) -> None:
        self._generator.manual_seed(seed)
