"""The pieces of a Network over an array module: NumPy, or CuPy"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import threadpoolctl

from d5ray.frameworks.arrays.array_pass import ArrayPass, PlacedPass, Taped, placed
from d5ray.frameworks.arrays.library import ArrayModule
from d5ray.frameworks.arrays.steps import Places, steps
from d5ray.frameworks.cupy.library import CuPy
from d5ray.frameworks.numpy import check_device
from d5ray.frameworks.numpy.library import NumPy
from d5ray.kits.parallel.stages.piece import Piece, element_type_of, parameters_of, state_of
from d5ray.kits.parallel.stages.piece_executor import Array, Arrays, PieceExecutor, Run, SavedTape
from d5ray.kits.parallel.stages.random_seeds import NodeSeeds
from d5ray.networks.device import Device
from d5ray.networks.executors.executor import FlatExecutor
from d5ray.networks.executors.flat_buffers import FlatBuffers
from d5ray.networks.executors.plan import plan
from d5ray.networks.executors.saved_bytes import kept_size, region_of
from d5ray.operators.collectives import Collectives

Kind = tuple[tuple[int, ...], Any]  # shape and type


def library_of(framework: str, device: Device, threads: int | None) -> ArrayModule:
    """NumPy with that many threads, or CuPy, on this device."""
    if framework == "cupy":
        return CuPy(device)
    check_device(device)
    if threads is not None:
        threadpoolctl.threadpool_limits(threads)
    return NumPy()


@final
@dataclass(frozen=True)
class _Tape:
    """kinds: of the outputs, and of the inputs whose gradients are asked for."""

    steps: list[Taped]
    kinds: dict[str, Kind]


@final
class ArrayPieceExecutor(PieceExecutor):
    """See `PieceExecutor`. Steps run one after the other, and in reverse; gradients are added in place."""

    def __init__(
        self, pieces: Sequence[Piece], library: ArrayModule, recompute: bool, collectives: Collectives | None
    ) -> None:
        super().__init__(pieces, library, recompute, collectives)
        self._library, self._xp = library, library.xp
        self._training: dict[int, PlacedPass] = {}
        with library.computing():
            self._constants = {
                name: library.put(value)
                for piece in self.pieces
                for name, value in piece.network.constants.items()
            }
            self._hold(
                FlatBuffers(
                    parameters_of(self.pieces), state_of(self.pieces), library, element_type_of(self.pieces)
                )
            )

    def _hold(self, holder: FlatBuffers | FlatExecutor) -> None:
        super()._hold(holder)
        assert isinstance(holder, FlatBuffers)
        self._gradient_views = holder.gradient_views
        self._held = {**holder.parameter_views, **holder.state_views, **self._constants}
        self._own_memory = frozenset(region_of(value).allocation for value in self._held.values())

    def _begin_pass(self) -> None:
        with self._library.computing():
            self.gradients[...] = 0

    def _run(self, chunk: int, inputs: Arrays, *, replacing: bool) -> tuple[dict[str, Array], SavedTape]:
        built = self._training_steps(chunk)
        sloped = self.pieces[chunk].differentiated
        with self._library.computing():
            values = built.values(inputs, self._held)
            tape = built.passed.forward(values)
            outputs = {name: self._xp.asarray(values[place]) for name, place in built.wanted}
            for name, place in built.state if replacing else ():
                self._held[name][...] = values[place]
            values.clear()
        kinds = {name: (each.shape, each.dtype) for name, each in outputs.items()}
        kinds |= {name: (each.shape, each.dtype) for name, each in inputs.items() if name in sloped}
        signature = chunk, tuple(each.shape for each in inputs.values())
        size = self._known_size(signature, lambda: self._size_of_tape(tape))
        return outputs, SavedTape(_Tape(tape, kinds), size)

    def _differentiate(
        self, chunk: int, tape: _Tape, gradients: Mapping[str, Array | float]
    ) -> dict[str, Array]:
        built, piece, xp = self._training_steps(chunk), self.pieces[chunk], self._xp
        found: dict[str, Array] = {}

        def take(name: str, gradient: Array | None) -> None:
            if name in self._gradient_views:
                if gradient is not None:
                    self._gradient_views[name][...] += gradient
            elif gradient is not None:
                found[name] = gradient

        with self._library.computing():
            arrived = {}
            for name, place in built.wanted:
                if name in gradients:
                    shape, dtype = tape.kinds[name]
                    arrived[place] = xp.broadcast_to(xp.asarray(gradients[name], dtype=dtype), shape)
            built.passed.backward(tape.steps, arrived, take)
            for name in piece.incoming:
                if name in piece.differentiated and name not in found:
                    shape, dtype = tape.kinds[name]
                    found[name] = xp.zeros(shape, dtype)
        return found

    def _evaluation(self, chunk: int, wanted: tuple[str, ...]) -> Run:
        built = self._built(chunk, wanted, training=False)

        def infer(inputs: Arrays) -> dict[str, Array]:
            with self._library.computing():
                values = built.values(inputs, self._held)
                built.passed.forward(values)
                return {name: self._xp.asarray(values[place]) for name, place in built.wanted}

        return infer

    def _training_steps(self, chunk: int) -> PlacedPass:
        if chunk not in self._training:
            wanted = tuple(self.pieces[chunk].network.outputs)
            self._training[chunk] = self._built(chunk, wanted, training=True)
        return self._training[chunk]

    def _built(self, chunk: int, wanted: tuple[str, ...], *, training: bool) -> PlacedPass:
        piece, places = self.pieces[chunk], Places()
        network = piece.network
        made = plan(network, wanted, training=training)
        own = steps(
            network,
            made,
            places,
            framework=self.framework,
            roots=wanted if training else None,
            sources=(*network.parameters, *(name for name in piece.incoming if name in piece.differentiated)),
            random=lambda node: NodeGenerator(self._library.generator, self.seeds, node.name),
            collectives=self.collectives,
        )
        return placed(ArrayPass(self._xp, own, None), places, made, self._held)

    def _size_of_tape(self, tape: Sequence[Taped]) -> int:
        arrays = (each for _, given, made in tape for each in (*given, *made) if each is not None)
        return kept_size(map(region_of, arrays), self._own_memory)


@final
class NodeGenerator:
    """The generator of one node, which begins anew with every micro-batch, from the node's seed for it."""

    def __init__(self, generator: Callable[[int], Any], seeds: NodeSeeds, node: str) -> None:
        self._made, self._seeds, self._node = generator, seeds, node
        self._begun = -1
        self._current: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._begun != self._seeds.begun:
            self._current, self._begun = self._made(self._seeds.seed_of(self._node)), self._seeds.begun
        return getattr(self._current, name)
