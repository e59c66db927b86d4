"""The pieces of a Network under TensorFlow: two graph functions for each, with flat buffers of NumPy"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.frameworks.numpy.library import NumPy
from d5ray.frameworks.tensorflow.library import TensorFlow, use_threads
from d5ray.frameworks.tensorflow.nodes import calls, compute_all, specification
from d5ray.kits.parallel.executors.tensorflow_halves import Halves
from d5ray.kits.parallel.stages.piece import Piece, element_type_of, parameters_of, state_of
from d5ray.kits.parallel.stages.piece_executor import Arrays, PieceExecutor, Run, SavedTape
from d5ray.networks.device import Device
from d5ray.networks.executors.flat_buffers import FlatBuffers
from d5ray.networks.executors.fusion import fused
from d5ray.networks.executors.plan import plan
from d5ray.networks.executors.saved_bytes import kept_size
from d5ray.operators.collectives import Collectives
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
    """given: the inputs that the backward half reads, None for the others. saved: see `Halves`."""

    given: tuple[Tensor | None, ...]
    seeds: tuple[Tensor, ...]
    saved: tuple[Tensor, ...]
    kinds: dict[str, tuple[Any, Any]]  # shapes and types, of outputs and of inputs


@final
class TensorFlowPieceExecutor(PieceExecutor):
    """See `PieceExecutor`. Flat parameters and gradients are NumPy's, in host memory.

    Parameters are copied to tensors once in a pass, gradients are added to the buffer micro-batch by
    micro-batch. What TensorFlow's loops, such as those of an LSTM, keep in lists of theirs is not counted
    in `kept_bytes`.
    """

    def __init__(
        self, pieces: Sequence[Piece], library: TensorFlow, recompute: bool, collectives: Collectives | None
    ) -> None:
        super().__init__(pieces, library, recompute, collectives)
        self._where = library.where
        self._flat = FlatBuffers(
            parameters_of(self.pieces), state_of(self.pieces), NumPy(), element_type_of(self.pieces)
        )
        self._hold(self._flat)
        self._current: dict[str, Tensor] = {}  # the parameters of the pass
        self._training: dict[int, Halves] = {}

    def _begin_pass(self) -> None:
        self.gradients[...] = 0
        self._take_parameters()

    def _run(self, chunk: int, inputs: Arrays, *, replacing: bool) -> tuple[dict[str, Tensor], SavedTape]:
        halves = self._halves(chunk)
        given = [inputs[name] for name in halves.given]
        seeds = [self._seed(node) for node in halves.drawing]
        found, state, saved = halves.forward(given, self._held(halves.held), seeds)
        for name, value in zip(halves.state, state, strict=True) if replacing else ():
            self._flat.state_views[name][...] = np.asarray(value)
        outputs = dict(zip(halves.wanted, found, strict=True))
        reread = set(halves.reread)
        tape = _Tape(
            tuple(each if name in reread else None for name, each in zip(halves.given, given, strict=True)),
            tuple(seeds),
            tuple(saved),
            {name: (each.shape, each.dtype) for name, each in (*inputs.items(), *outputs.items())},
        )
        signature = chunk, tuple(tuple(each.shape) for each in given)
        kept = [each for each in (*tape.given, *tape.saved) if each is not None]
        return outputs, SavedTape(
            tape, self._known_size(signature, lambda: kept_size(map(self.library.region_of, kept)))
        )

    def _differentiate(
        self, chunk: int, tape: _Tape, gradients: Mapping[str, Tensor | float]
    ) -> dict[str, Tensor]:
        halves, piece = self._halves(chunk), self.pieces[chunk]
        with tf.device(self._where):
            slopes = [
                tf.broadcast_to(tf.cast(gradients.get(name, 0), dtype), shape)
                for name, (shape, dtype) in ((name, tape.kinds[name]) for name in halves.sloped)
            ]
            made = halves.backward(tape.given, self._held(halves.held), tape.seeds, tape.saved, slopes)
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
        read = made.read
        held = tuple(name for name in (*network.parameters, *network.state_values) if name in read)
        names = (*made.inputs, *held)
        own = calls(
            network,
            made,
            evaluating=True,
            random=lambda _: None,
            collectives=self.collectives,
            observer=None,
            trained=(),
        )

        def compute(*arguments: Tensor) -> list[Tensor]:
            values = dict(zip(names, arguments, strict=True))
            compute_all(network, own, values, read)
            return [tf.identity(values[name]) for name in wanted]

        signature = [specification(network.descriptors[name]) for name in names]
        with tf.device(self._where):
            function = tf.function(compute, input_signature=signature, autograph=False)
            traced: Callable[..., Sequence[Tensor]] = function.get_concrete_function()

        def infer(inputs: Arrays) -> dict[str, Tensor]:
            views = {**self._flat.parameter_views, **self._flat.state_views}
            arguments = [*(inputs[name] for name in made.inputs), *(self.put(views[name]) for name in held)]
            return dict(zip(wanted, traced(*arguments), strict=True))

        return infer

    def _halves(self, chunk: int) -> Halves:
        if chunk not in self._training:
            self._training[chunk] = Halves(self.pieces[chunk], self._where, self.collectives)
        return self._training[chunk]

    def _held(self, names: Sequence[str]) -> list[Tensor]:
        """Parameters as they were when the pass began, state as it is now."""
        if not self._current:
            self._take_parameters()
        state = self._flat.state_views
        return [self.put(np.array(state[name])) if name in state else self._current[name] for name in names]

    def _take_parameters(self) -> None:
        self._current = {name: self.put(np.array(view)) for name, view in self._flat.parameter_views.items()}

    def _seed(self, node: str) -> Tensor:
        return tf.constant([self.seeds.seed_of(node), 0], tf.int64)
