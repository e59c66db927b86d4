"""The pieces of a Network under PyTorch: gradients are added where they lie, activations are never copied"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge, saved_tensors_hooks

from d5ray.frameworks.torch.graph import Code, code_of, graph
from d5ray.frameworks.torch.library import Torch, chosen
from d5ray.frameworks.torch.network_module import NetworkTensors
from d5ray.kits.parallel.stages.piece import Piece, element_type_of, parameters_of, state_of
from d5ray.kits.parallel.stages.piece_executor import Arrays, PieceExecutor, Run, SavedTape
from d5ray.networks.device import Device
from d5ray.networks.executors.array_library import ArrayLibrary
from d5ray.networks.executors.executor import FlatExecutor
from d5ray.networks.executors.flat_buffers import FlatBuffers
from d5ray.networks.executors.graph_executor import draws
from d5ray.networks.executors.plan import plan
from d5ray.networks.executors.saved_bytes import Region, kept_size
from d5ray.operators.collectives import Collectives
from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import Kernel

Tensors = dict[str, torch.Tensor]


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

    leaves: Tensors
    edges: dict[str, GradientEdge]
    kinds: dict[str, tuple[torch.Size, torch.dtype]]


@final
@dataclass(frozen=True)
class _Built:
    """The code of one chunk in one kind of pass."""

    code: Code
    given: tuple[str, ...]
    wanted: tuple[str, ...]


@final
class TorchPieceExecutor(PieceExecutor):
    """See `PieceExecutor`. Code is written once for each chunk, and differentiated by autograd.

    What a micro-batch of certain shapes keeps is counted when shapes are met for the first time: what
    autograd saves, and the inputs whose gradients are asked for.
    """

    def __init__(
        self, pieces: Sequence[Piece], library: Torch, recompute: bool, collectives: Collectives | None
    ) -> None:
        super().__init__(pieces, library, recompute, collectives)
        self._generator = library.generator
        parameters, state = parameters_of(self.pieces), state_of(self.pieces)
        self._tensors = NetworkTensors(self.pieces[0].network, parameters)
        for piece in self.pieces[1:]:
            self._tensors.adopt(piece.network)
        self._tensors.to(library.device)
        own = self._tensors.tensor
        self._hold(
            FlatBuffers(
                {name: own(name) for name in parameters},
                {name: own(name) for name in state},
                library,
                element_type_of(self.pieces),
            )
        )
        self._training: dict[tuple[int, bool], _Built] = {}

    def _hold(self, holder: FlatBuffers | FlatExecutor) -> None:
        super()._hold(holder)
        held = (*self._tensors.parameters(), *self._tensors.buffers())
        self._own_memory = frozenset(each.untyped_storage().data_ptr() for each in held)

    def _begin_pass(self) -> None:
        self.gradients.zero_()

    def _run(self, chunk: int, inputs: Arrays, *, replacing: bool) -> tuple[Tensors, SavedTape]:
        built = self._training_code(chunk, replacing)
        sloped = self.pieces[chunk].differentiated
        leaves = {name: each.detach().requires_grad_() for name, each in inputs.items() if name in sloped}
        given = [leaves[name] if name in leaves else inputs[name] for name in built.given]
        signature = chunk, tuple(each.shape for each in given)
        saved = None if signature in self._known_sizes else _Saved(self.library)
        with saved or nullcontext(), torch.enable_grad():
            made = dict(zip(built.wanted, built.code(self._tensors, *given), strict=True))
        size = self._known_size(signature, lambda: self._size_of_saved(saved, leaves))
        tape = _Tape(
            leaves,
            {name: get_gradient_edge(each) for name, each in made.items() if each.requires_grad},
            {name: (each.shape, each.dtype) for name, each in made.items()},
        )
        outputs = {name: each.detach() for name, each in made.items()}
        return outputs, SavedTape(tape, size)

    def _differentiate(
        self, chunk: int, tape: _Tape, gradients: Mapping[str, torch.Tensor | float]
    ) -> Tensors:
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
        network = self.pieces[chunk].network
        made = plan(network, wanted)
        own = graph(network, made, self._tensors.places, evaluating=True, collectives=self.collectives)
        code = code_of(own, self._tensors)

        def infer(inputs: Arrays) -> Tensors:
            with torch.inference_mode():
                found = code(self._tensors, *[inputs[name] for name in made.inputs])
            return dict(zip(wanted, found, strict=True))

        return infer

    def _training_code(self, chunk: int, replacing: bool) -> _Built:
        if (chunk, replacing) not in self._training:
            network = self.pieces[chunk].network
            made = plan(network, network.outputs, training=True)
            made = made if replacing else replace(made, state={})
            own = graph(
                network,
                made,
                self._tensors.places,
                evaluating=False,
                collectives=self.collectives,
                around=self._seeded,
            )
            code = code_of(own, self._tensors)
            self._training[chunk, replacing] = _Built(code, made.inputs, made.wanted)
        return self._training[chunk, replacing]

    def _seeded(self, node: Node, function: Kernel) -> Kernel:
        """The function of a node, which draws what this node draws of the current micro-batch."""
        if not draws(node):
            return function
        generator, own, name = self._generator, self.seeds, node.name

        def drawing(*inputs: Any) -> Any:
            generator.manual_seed(own.seed_of(name))
            return function(*inputs)

        return drawing

    def _size_of_saved(self, saved: "_Saved | None", leaves: Tensors) -> int:
        regions = [] if saved is None else saved.regions
        return kept_size([*regions, *map(self.library.region_of, leaves.values())], self._own_memory)


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
