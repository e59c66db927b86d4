"""The executor of a Network under PyTorch: code that is written once, differentiated by autograd"""

from collections.abc import Callable, Iterable, Sequence
from time import perf_counter_ns
from typing import final

import numpy as np
import torch

from d5ray.frameworks.torch.devices import chosen
from d5ray.frameworks.torch.executor import generator_of
from d5ray.frameworks.torch.graph import Code, code_of, graph
from d5ray.frameworks.torch.network_module import NetworkTensors
from d5ray.frameworks.torch.tensors import array_of, tensor_of
from d5ray.networks.device import CPUDevice, Device
from d5ray.networks.execution.allocated import allocated_bytes
from d5ray.networks.execution.event import GraphEvent
from d5ray.networks.execution.observer import Observer
from d5ray.networks.execution.plan import Plan
from d5ray.networks.graph_executor import Array, Arrays, GraphExecutor, Run, check_one_number
from d5ray.networks.network import Network

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

    framework = "torch"

    def __init__(
        self,
        network: Network,
        device: Device = CPUDevice(),  # noqa: B008 - frozen data
        events: GraphEvent | Sequence[GraphEvent] = (),
        *,
        trained: Iterable[str] | None = None,
        seed: int = 0,
        compiler: Compiler | None = None,
    ) -> None:
        self._torch_device = chosen(device)
        self._on_cpu = self._torch_device.type == "cpu"
        self._compiler = compiler
        self._generator = generator_of(self._torch_device)
        self._gradients: dict[str, torch.Tensor | None] = {}
        self.tensors: NetworkTensors | None = None
        super().__init__(network, device, events, trained=trained, seed=seed)

    def _build(self, made: Plan, loss: str | None, observer: Observer | None) -> Run:
        tensors = self._tensors()
        own = graph(self.network, made, tensors.places, evaluating=loss is None, observer=observer)
        code = code_of(own, tensors)
        if self._compiler is not None and observer is None:
            code = self._compiler(code)
        makers = {name: node.type for _, node in made.nodes for name in node.outputs}
        shared = tuple(makers.get(name, "Identity") in ALIASING for name in made.wanted)
        wanted = tuple(zip(made.wanted, shared, strict=True))
        given, tensor = made.inputs, self._tensor

        def outputs_of(found: tuple[torch.Tensor, ...]) -> dict[str, Array]:
            return {
                name: np.array(array_of(value)) if aliasing else array_of(value)
                for (name, aliasing), value in zip(wanted, found, strict=True)
            }

        def infer(inputs: Arrays) -> dict[str, Array]:
            with torch.inference_mode():
                return outputs_of(code(tensors, *[tensor(inputs[name]) for name in given]))

        if loss is None:
            return infer
        place = made.wanted.index(loss)
        reached = {name for name, _ in self.network.gradient(loss)}
        names = tuple(name for name in self._trained if name in reached)
        parameters = tuple(tensors.tensor(name) for name in names)

        def train(inputs: Arrays) -> dict[str, Array]:
            begin = perf_counter_ns()
            with torch.enable_grad():
                found = code(tensors, *[tensor(inputs[name]) for name in given])
                value = found[place]
                if value.numel() != 1:
                    check_one_number(loss, value.shape)
                self._synchronize()
                middle = perf_counter_ns()
                gradients = torch.autograd.grad(value, parameters, allow_unused=True)
            self._gradients = dict(zip(names, gradients, strict=True))
            self._synchronize()
            self.forward_ns += middle - begin
            self.backward_ns += perf_counter_ns() - middle
            return outputs_of(found)

        return train

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
        found = self._gradients.get(parameter)
        if found is None:
            found = torch.zeros_like(self._tensors().tensor(parameter))
        return np.array(array_of(found))

    def _seed_pass(self, seed: int) -> None:
        self._generator.manual_seed(seed)

    def _made_observer(self) -> Observer:
        return Observer(self.events, self._allocated, self._synchronize)

    def _allocated(self) -> int | None:
        return allocated_bytes() if self._on_cpu else int(torch.cuda.memory_allocated(self._torch_device))

    def _tensor(self, array: Array) -> torch.Tensor:
        tensor = tensor_of(array)
        return tensor if self._on_cpu else tensor.to(self._torch_device)

    def _synchronize(self) -> None:
        if not self._on_cpu:
            torch.cuda.synchronize(self._torch_device)
