"""The pieces of a Network over an array module: NumPy, or CuPy"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, final

import threadpoolctl

from d5ray.frameworks.arrays.array_pass import ArrayPass, Taped
from d5ray.frameworks.arrays.library import ArrayModule, NumPy
from d5ray.frameworks.arrays.steps import SeededGenerator
from d5ray.frameworks.cupy.library import CuPy
from d5ray.frameworks.numpy import check_device
from d5ray.kits.parallel.stages.piece_executor import Array, Arrays, PieceExecutor, Run
from d5ray.networks.device import Device
from d5ray.networks.executors.array_library import Region, Tensors
from d5ray.networks.executors.executor import FlatExecutor
from d5ray.networks.executors.flat_buffers import FlatBuffers
from d5ray.networks.executors.plan import plan
from d5ray.operators.nodes.node import Node

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

    library: ArrayModule

    def _laid(self, parameters: Tensors, state: Tensors, kind: Any) -> FlatBuffers:
        constants = {name: each for piece in self.pieces for name, each in piece.network.constants.items()}
        with self.library.computing():
            self._constants = {name: self.library.put(value) for name, value in constants.items()}
            return super()._laid(parameters, state, kind)

    def _hold(self, holder: FlatBuffers | FlatExecutor) -> None:
        super()._hold(holder)
        self._held = {**self._flat.parameter_views, **self._flat.state_views, **self._constants}

    def _begin_pass(self) -> None:
        with self.library.computing():
            super()._begin_pass()

    def _run(
        self, chunk: int, inputs: Arrays, *, replacing: bool, counted: bool
    ) -> tuple[dict[str, Array], _Tape, Iterable[Region]]:
        built, sloped = self._code(chunk), self.pieces[chunk].differentiated
        with self.library.computing():
            values = built.values(inputs, self._held)
            tape = built.forward(values)
            outputs = {name: self.library.xp.asarray(values[place]) for name, place in built.wanted}
            for name, place in built.state if replacing else ():
                self._held[name][...] = values[place]
            values.clear()
        kinds = {name: (each.shape, each.dtype) for name, each in outputs.items()}
        kinds |= {name: (each.shape, each.dtype) for name, each in inputs.items() if name in sloped}
        kept = (each for _, given, made in tape for each in (*given, *made) if each is not None)
        return outputs, _Tape(tape, kinds), map(self.library.region_of, kept)

    def _differentiate(
        self, chunk: int, tape: _Tape, gradients: Mapping[str, Array | float]
    ) -> dict[str, Array]:
        built, piece, xp = self._code(chunk), self.pieces[chunk], self.library.xp
        views = self._flat.gradient_views
        found: dict[str, Array] = {}

        def take(name: str, gradient: Array | None) -> None:
            if name in views:
                if gradient is not None:
                    views[name][...] += gradient
            elif gradient is not None:
                found[name] = gradient

        with self.library.computing():
            arrived = {}
            for name, place in built.wanted:
                if name in gradients:
                    shape, dtype = tape.kinds[name]
                    arrived[place] = xp.broadcast_to(xp.asarray(gradients[name], dtype=dtype), shape)
            built.backward(tape.steps, arrived, take)
            for name in piece.incoming:
                if name in piece.differentiated and name not in found:
                    shape, dtype = tape.kinds[name]
                    found[name] = xp.zeros(shape, dtype)
        return found

    def _evaluation(self, chunk: int, wanted: tuple[str, ...]) -> Run:
        built = self._steps(chunk, wanted, training=False)

        def infer(inputs: Arrays) -> dict[str, Array]:
            with self.library.computing():
                values = built.values(inputs, self._held)
                built.forward(values)
                return {name: self.library.xp.asarray(values[place]) for name, place in built.wanted}

        return infer

    def _build(self, chunk: int, *, replacing: bool) -> ArrayPass:
        return self._steps(chunk, tuple(self.pieces[chunk].network.outputs), training=True)

    def _steps(self, chunk: int, wanted: tuple[str, ...], *, training: bool) -> ArrayPass:
        piece = self.pieces[chunk]
        sloped = (name for name in piece.incoming if name in piece.differentiated)
        return ArrayPass(
            piece.network,
            plan(piece.network, wanted, training=training),
            self.library,
            self._held,
            roots=wanted if training else None,
            sources=(*piece.network.parameters, *sloped),
            random=self._generator_of,
            collectives=self.collectives,
        )

    def _generator_of(self, node: Node) -> SeededGenerator:
        """What a node draws from, anew in every micro-batch."""
        seeds = self.seeds
        return SeededGenerator(self.library.generator, lambda: (seeds.begun, seeds.seed_of(node.name)))
