"""The pieces of a Network under TensorFlow: two graph functions for each, with flat buffers of NumPy"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.frameworks.arrays.library import NumPy
from d5ray.frameworks.tensorflow.library import TensorFlow, use_threads
from d5ray.frameworks.tensorflow.nodes import specification
from d5ray.kits.parallel.executors.tensorflow_halves import Halves, computed, held_in
from d5ray.kits.parallel.stages.piece_executor import Arrays, PieceExecutor, Run
from d5ray.networks.device import Device
from d5ray.networks.executors.array_library import Region, Tensors
from d5ray.networks.executors.flat_buffers import NO_TENSORS, FlatBuffers
from d5ray.networks.executors.fusion import fused
from d5ray.networks.executors.plan import plan
from d5ray.ops.tensorflow.library import tf

Tensor = Any  # of TensorFlow


def library_of(framework: str, device: Device, threads: int | None) -> TensorFlow:
    """TensorFlow on this device, with that many threads."""
    if threads is not None:
        use_threads(threads)
    return TensorFlow(device)


@final
@dataclass(frozen=True)
class _Tape:
    """reread, saved: see `Halves`. kinds: shapes and types, of outputs and of inputs."""

    reread: list[Tensor]
    saved: list[Tensor]
    kinds: dict[str, tuple[Any, Any]]


@final
class TensorFlowPieceExecutor(PieceExecutor):
    """See `PieceExecutor`. Flat parameters and gradients are NumPy's, in host memory.

    Parameters are copied to tensors once in a pass, gradients are added to the buffer micro-batch by
    micro-batch. What TensorFlow's loops, such as those of an LSTM, keep in lists of theirs is not counted
    in `kept_bytes`.
    """

    library: TensorFlow
    _current: Tensors = NO_TENSORS  # the parameters of the pass

    def _laid(self, parameters: Tensors, state: Tensors, kind: Any) -> FlatBuffers:
        return FlatBuffers(parameters, state, NumPy(), kind)

    def _begin_pass(self) -> None:
        super()._begin_pass()
        self._take_parameters()

    def _run(
        self, chunk: int, inputs: Arrays, *, replacing: bool, counted: bool
    ) -> tuple[dict[str, Tensor], _Tape, Iterable[Region]]:
        halves = self._code(chunk)
        if not self._current:
            self._take_parameters()
        state, known = self._flat.state_views, {**self._current, **inputs}
        read = [self.put(np.array(state[name])) if name in state else known[name] for name in halves.read]
        seeds = [tf.constant([self.seeds.seed_of(node), 0], tf.int64) for node in halves.drawing]
        found, after, reread, saved = halves.forward(read, seeds)
        for name, value in zip(halves.state, after, strict=True) if replacing else ():
            state[name][...] = np.asarray(value)
        outputs = dict(zip(halves.wanted, found, strict=True))
        kinds = {name: (each.shape, each.dtype) for name, each in (*inputs.items(), *outputs.items())}
        kept = (*reread[: halves.given_again], *saved)  # what is a parameter, state or seed is not counted
        return outputs, _Tape(reread, saved, kinds), map(self.library.region_of, kept)

    def _differentiate(
        self, chunk: int, tape: _Tape, gradients: Mapping[str, Tensor | float]
    ) -> dict[str, Tensor]:
        halves, piece = self._code(chunk), self.pieces[chunk]
        with tf.device(self.library.where):
            slopes = [
                tf.broadcast_to(tf.cast(gradients.get(name, 0), dtype), shape)
                for name, (shape, dtype) in ((name, tape.kinds[name]) for name in halves.sloped)
            ]
            made = halves.backward(tape.reread, tape.saved, slopes)
            slope_of = dict(zip(halves.sources, made, strict=True))
            for name, view in self._flat.gradient_views.items():
                if name in slope_of:
                    view += np.asarray(slope_of[name])
            return {
                name: slope_of[name] if name in slope_of else tf.zeros(*tape.kinds[name])
                for name in piece.incoming
                if name in piece.differentiated
            }

    def _evaluation(self, chunk: int, wanted: tuple[str, ...]) -> Run:
        network = self.pieces[chunk].network
        made = fused(network, plan(network, wanted))
        held = held_in(network, made)
        names = (*made.inputs, *held)

        def compute(*arguments: Tensor) -> list[Tensor]:
            values = dict(zip(names, arguments, strict=True))
            return computed(network, made, values, self.collectives)

        signature = [specification(network.descriptors[name]) for name in names]
        with tf.device(self.library.where):
            function = tf.function(compute, input_signature=signature, autograph=False)
            traced: Callable[..., Sequence[Tensor]] = function.get_concrete_function()

        def infer(inputs: Arrays) -> dict[str, Tensor]:
            views = {**self._flat.parameter_views, **self._flat.state_views}
            arguments = [*(inputs[name] for name in made.inputs), *(self.put(views[name]) for name in held)]
            return dict(zip(wanted, traced(*arguments), strict=True))

        return infer

    def _build(self, chunk: int, *, replacing: bool) -> Halves:
        return Halves(self.pieces[chunk], self.library.where, self.collectives)

    def _take_parameters(self) -> None:
        self._current = {name: self.put(np.array(view)) for name, view in self._flat.parameter_views.items()}
