"""The pieces of a Network under PyTorch: gradients are added where they lie, activations are never copied"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, final

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge, saved_tensors_hooks

from d5ray.frameworks.torch.graph import code_of, graph
from d5ray.frameworks.torch.library import Torch, chosen
from d5ray.frameworks.torch.network_module import NetworkTensors
from d5ray.kits.parallel.stages.piece_executor import Arrays, PieceExecutor, Run
from d5ray.networks.device import Device
from d5ray.networks.executors.array_library import ArrayLibrary, Region, Tensors
from d5ray.networks.executors.flat_buffers import FlatBuffers
from d5ray.networks.executors.graph_executor import draws
from d5ray.networks.executors.plan import Plan, plan
from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import Kernel

Made = dict[str, torch.Tensor]
Around = Callable[[Node, Kernel], Kernel]


def library_of(framework: str, device: Device, threads: int | None) -> Torch:
    """PyTorch on this device, with that many threads."""
    if threads is not None:
        torch.set_num_threads(threads)
    return Torch(chosen(device))


@final
@dataclass(frozen=True)
class _Tape:
    """leaves: the inputs whose gradients are asked for. edges: where the outputs' gradients enter; outputs
    are not kept themselves, unless an operator needs them. kinds: shapes and types of the outputs."""

    leaves: Made
    edges: dict[str, GradientEdge]
    kinds: dict[str, tuple[torch.Size, torch.dtype]]


@final
class TorchPieceExecutor(PieceExecutor):
    """See `PieceExecutor`. Code is written once for each chunk, and differentiated by autograd.

    What a micro-batch of certain shapes keeps is counted when shapes are met for the first time: what
    autograd saves, and the inputs whose gradients are asked for.
    """

    library: Torch

    def _laid(self, parameters: Tensors, state: Tensors, kind: Any) -> FlatBuffers:
        self._tensors = NetworkTensors(self.pieces[0].network, parameters)
        for piece in self.pieces[1:]:
            self._tensors.adopt(piece.network)
        own = self._tensors.to(self.library.device).tensor
        self._constants = {name: own(name) for piece in self.pieces for name in piece.network.constants}
        trained, others = ({name: own(name) for name in each} for each in (parameters, state))
        return FlatBuffers(trained, others, self.library, kind)

    def _run(
        self, chunk: int, inputs: Arrays, *, replacing: bool, counted: bool
    ) -> tuple[Made, _Tape, Iterable[Region]]:
        built, sloped = self._code(chunk, replacing=replacing), self.pieces[chunk].differentiated
        leaves = {name: each.detach().requires_grad_() for name, each in inputs.items() if name in sloped}
        saved = _Saved(self.library)
        with saved if counted else nullcontext(), torch.enable_grad():
            made = built({**inputs, **leaves})
        tape = _Tape(
            leaves,
            {name: get_gradient_edge(each) for name, each in made.items() if each.requires_grad},
            {name: (each.shape, each.dtype) for name, each in made.items()},
        )
        outputs = {name: each.detach() for name, each in made.items()}
        return outputs, tape, chain(saved.regions, map(self.library.region_of, leaves.values()))

    def _differentiate(self, chunk: int, tape: _Tape, gradients: Mapping[str, torch.Tensor | float]) -> Made:
        named = [name for name in gradients if name in tape.edges]
        if named:
            torch.autograd.backward(
                [tape.edges[name] for name in named],
                [self._whole(gradients[name], *tape.kinds[name]) for name in named],
            )
        return {
            name: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
            for name, leaf in tape.leaves.items()
        }

    def _whole(self, gradient: torch.Tensor | float, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
        if isinstance(gradient, torch.Tensor):
            return gradient
        return torch.full(shape, gradient, dtype=dtype, device=self.gradients.device)

    def _evaluation(self, chunk: int, wanted: tuple[str, ...]) -> Run:
        return torch.inference_mode()(self._written(chunk, plan(self.pieces[chunk].network, wanted)))

    def _build(self, chunk: int, *, replacing: bool) -> Run:
        network = self.pieces[chunk].network
        made = plan(network, network.outputs, training=True)
        return self._written(chunk, made if replacing else replace(made, state={}), self._seeded)

    def _written(self, chunk: int, made: Plan, around: Around | None = None) -> Run:
        """The code of a plan; around: of training, see `graph`."""
        code = code_of(
            graph(
                self.pieces[chunk].network,
                made,
                self._tensors.places,
                evaluating=around is None,
                collectives=self.collectives,
                around=around,
            ),
            self._tensors,
        )

        def run(inputs: Arrays) -> Made:
            found = code(self._tensors, *[inputs[name] for name in made.inputs])
            return dict(zip(made.wanted, found, strict=True))

        return run

    def _seeded(self, node: Node, function: Kernel) -> Kernel:
        """The function of a node, which draws what this node draws of the current micro-batch."""
        if not draws(node):
            return function
        generator, own, name = self.library.generator, self.seeds, node.name

        def drawing(*inputs: Any) -> Any:
            generator.manual_seed(own.seed_of(name))
            return function(*inputs)

        return drawing


@final
class _Saved(saved_tensors_hooks):
    """The tensors that autograd saves within it; saved as ever."""

    def __init__(self, library: ArrayLibrary) -> None:
        self._library = library
        self.regions: list[Region] = []
        super().__init__(self._pack, lambda tensor: tensor)

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        self.regions.append(self._library.region_of(tensor))
        return tensor
