"""PieceExecutor: computes the pieces of a network that one stage holds, forwards and backwards"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError, nearest
from d5ray.kits.parallel.stages.piece import Piece, element_type_of, parameters_of, state_of
from d5ray.kits.parallel.stages.random_seeds import NodeSeeds
from d5ray.networks.executors.array_library import ArrayLibrary, Region, Tensors, kept_size
from d5ray.networks.executors.executor import FlatExecutor
from d5ray.networks.executors.flat_buffers import FlatBuffers
from d5ray.networks.executors.inputs import check_kinds
from d5ray.networks.executors.plan import computable
from d5ray.operators.collectives import Collectives
from d5ray.ops.lookup import check_supported

Array = Any  # of the framework, on its device
Arrays = Mapping[str, Array]
HostArray = np.ndarray[Any, Any]
Run = Callable[[Arrays], dict[str, Array]]  # from checked inputs to outputs, by name

MOST_SIGNATURES = 1024  # shapes of inputs that are remembered as right
NOT_COUNTED = -1  # the bytes that one keeps before its first pass


@final
@dataclass(frozen=True)
class SavedTape:
    """The values that a forward pass leaves for its backward pass, and their bytes of activations."""

    tape: Any
    size: int


class PieceExecutor(FlatExecutor, ABC):
    """The pieces of one stage, under one framework on one device. Nothing here communicates.

    A stage holds one piece, or several where pieces are interleaved; they are its chunks, numbered from 0
    in the order in which they are given. All of them share one pair of flat buffers, in which a parameter
    that several chunks hold stands once; `buffers` is kept up to date by `forward`, in the order of its
    calls.

    put, get, empty         `ArrayLibrary.put`, `host` and `empty` of the framework's array library
    synchronize             that library's, too
    kept_bytes              activations that are kept now for backward passes. What is parameter, constant or
                            state is not counted, nor what a pass takes and gives back within one call.
    peak_kept_bytes         the most of it since `begin_pass`, with what a recomputation holds
    recompute               whether `forward` keeps the inputs alone, and `backward` computes the rest again:
                            from the same random draws, with the same bits, and with the state left alone

    A pass over a batch is

        begin_pass()
        forward(chunk, micro, inputs) and backward(chunk, micro, gradients) for every chunk and micro-batch,
        in any order in which each follows what it needs

    and then `gradients` holds the sum over all of them. Parameters must not be written between `begin_pass`
    and the last `backward`. Arrays that are given and those that are returned may share memory with what is
    kept: nobody writes into them.

    What a node draws at random, such as a Dropout its mask, depends on (seed, replica, pass, micro-batch,
    the node's name) alone: it is the same under every cut. A BatchNormalization normalizes over one
    micro-batch. So what a pass computes is what one piece of the whole network computes of the same
    micro-batches.

    collectives: of the tensor-parallel ranks of a split network (`split`), which compute the same pieces.
    pieces: of one network, in the order of their indices. Raises `ConfigurationError` where they are not,
    where their parameters are of several types, and where the framework lacks one of their operators.
    """

    def __init__(
        self, pieces: Sequence[Piece], library: ArrayLibrary, recompute: bool, collectives: Collectives | None
    ) -> None:
        self.pieces = _checked(pieces)
        self.framework = library.name
        self.recompute = recompute
        self.collectives = collectives
        self.library, self.synchronize = library, library.synchronize
        self.put, self.get, self.empty = library.put, library.host, library.empty
        check_supported(library.name, [node for piece in self.pieces for node in piece.network.nodes])
        self.kept_bytes = self.peak_kept_bytes = 0
        self.seeds = NodeSeeds()
        self._kept: dict[tuple[int, int], SavedTape] = {}
        self._sizes: dict[Any, int] = {}  # of signatures of inputs that were right: what these keep
        self._training: dict[tuple[int, bool], Any] = {}
        self._evaluating: dict[tuple[int, tuple[str, ...]], Run] = {}
        self._constants: Tensors = {}  # on the device
        own = parameters_of(self.pieces), state_of(self.pieces)
        self._hold(self._laid(*own, element_type_of(self.pieces)))

    # -- a pass ----------------------------------------------------------------------------------------

    @final
    def begin_pass(self) -> None:
        """Let the gradients be zero, and count one pass more. What a broken pass has kept is let go."""
        self._kept.clear()
        self.kept_bytes = self.peak_kept_bytes = 0
        self.seeds.begin_pass()
        self._begin_pass()

    @final
    def forward(self, chunk: int, micro: int, inputs: Arrays) -> dict[str, Array]:
        """The outputs of a chunk for one micro-batch, in training mode.

        inputs: all those of `pieces[chunk].network`, the framework's arrays by name; see `put`. micro: the
        micro-batch's number within the pass, from 0 up. What `backward` needs is kept under (chunk, micro).
        Raises `ConfigurationError` for inputs that are missing, unknown, or of another type or shape, and
        for a micro-batch whose backward pass has not been.
        """
        piece = self._piece(chunk)
        if (chunk, micro) in self._kept:
            raise ConfigurationError(
                f"forward of micro-batch {micro} was called twice on chunk {chunk} ({piece!r}): call "
                "backward first, or begin_pass"
            )
        self._check_complete(piece, inputs)
        outputs, kept = self._passed(chunk, micro, inputs, replacing=True)
        self._count(kept.size)
        if self.recompute:
            regions = map(self.library.region_of, inputs.values())
            only = SavedTape(dict(inputs), kept_size(regions, self._own_memory))
            self._count(only.size - kept.size)
            kept = only
        self._kept[chunk, micro] = kept
        return outputs

    @final
    def backward(self, chunk: int, micro: int, gradients: Mapping[str, Array | float]) -> dict[str, Array]:
        """Add to `gradients` what a micro-batch contributes, and give the gradients of the chunk's inputs.

        gradients: of the outputs by name, arrays of their shapes, or a number for all elements. They must
        have every tensor of `outgoing` that is in `differentiated`, as the sum over its readers; what the
        whole network gives, such as its loss, is differentiated where it is named: {"loss": 0.25} for the
        mean of four equal micro-batches.
        Returned are those of the tensors of `incoming` that are in `differentiated`, zero where nothing leads
        there. What was kept under (chunk, micro) is let go. Raises `ConfigurationError` for gradients that
        are missing or unknown, and where there was no `forward`.
        """
        piece = self._piece(chunk)
        if (chunk, micro) not in self._kept:
            raise ConfigurationError(
                f"backward of micro-batch {micro} on chunk {chunk} ({piece!r}), of which nothing is kept: "
                "forward comes first, and backward once"
            )
        _check_gradients(piece, gradients)
        kept = self._kept.pop((chunk, micro))
        held = kept.size
        try:
            if self.recompute:
                _, again = self._passed(chunk, micro, kept.tape, replacing=False)
                held = max(kept.size, again.size)  # the inputs are among what is kept now
                self._count(held - kept.size)
                kept = again
            return self._differentiate(chunk, kept.tape, gradients)
        finally:
            self.kept_bytes -= held

    @final
    def inference(self, chunk: int, inputs: Arrays) -> dict[str, Array]:
        """The outputs of a chunk in evaluation mode: no Dropout, running statistics. Nothing is kept.

        Outputs that need inputs which are not given, such as a loss without its labels, are left out.
        """
        piece = self._piece(chunk)
        for name in inputs:
            if name not in piece.network.inputs:
                raise _unknown(piece, name)
        self._signature(chunk, inputs)
        wanted = computable(piece.network, inputs)
        if (chunk, wanted) not in self._evaluating:
            self._evaluating[chunk, wanted] = self._evaluation(chunk, wanted)
        return self._evaluating[chunk, wanted](inputs)

    # -- random numbers --------------------------------------------------------------------------------

    @final
    def draw_from(self, seed: int, rank: int) -> None:
        """Let what is drawn at random follow from these, from the next pass on; rank: the replica's."""
        self.seeds.draw_from(seed, rank)

    @final
    def random_state(self) -> HostArray:
        """The number of the pass, as bytes (8,) uint8."""
        return np.array([self.seeds.passes], np.int64).view(np.uint8)

    @final
    def set_random_state(self, state: HostArray) -> None:
        """Go on drawing from this state, as `random_state` gave it."""
        self.seeds.passes = int(np.array(state).view(np.int64)[0])

    # -- what a framework fills --------------------------------------------------------------------------

    def _laid(self, parameters: Tensors, state: Tensors, kind: Any) -> FlatBuffers:
        """The flat buffers of these; kind: the type where there are no parameters."""
        return FlatBuffers(parameters, state, self.library, kind)

    def _hold(self, holder: FlatBuffers | FlatExecutor) -> None:
        super()._hold(holder)
        own = (self.parameters, self.buffers, *self._constants.values())
        # Allocations that are not kept for backward passes: parameters, state and constants.
        self._own_memory = frozenset(self.library.region_of(each).allocation for each in own)

    def _begin_pass(self) -> None:
        """Let the gradients be zero."""
        self.gradients[...] = 0

    @abstractmethod
    def _build(self, chunk: int, *, replacing: bool) -> Any:
        """The code of a chunk in training mode, made once. replacing: whether it replaces state."""

    @abstractmethod
    def _run(
        self, chunk: int, inputs: Arrays, *, replacing: bool, counted: bool
    ) -> tuple[dict[str, Array], Any, Iterable[Region]]:
        """All outputs in training mode, what `_differentiate` needs, and the memory that this keeps.

        replacing: whether state is replaced. counted: whether the memory is looked at.
        """

    @abstractmethod
    def _differentiate(
        self, chunk: int, tape: Any, gradients: Mapping[str, Array | float]
    ) -> dict[str, Array]:
        """Add to `gradients`, and give those of the incoming tensors that are differentiated."""

    @abstractmethod
    def _evaluation(self, chunk: int, wanted: tuple[str, ...]) -> Run:
        """The code of a chunk that computes these outputs in evaluation mode."""

    # -- how ---------------------------------------------------------------------------------------------

    def _passed(
        self, chunk: int, micro: int, inputs: Arrays, *, replacing: bool
    ) -> tuple[dict[str, Array], SavedTape]:
        """A forward pass; what it keeps is counted for the first micro-batch of each signature."""
        signature = self._signature(chunk, inputs)
        counted = self._sizes[signature] == NOT_COUNTED
        self.seeds.begin(micro)
        outputs, tape, regions = self._run(chunk, inputs, replacing=replacing, counted=counted)
        if counted:
            self._sizes[signature] = kept_size(regions, self._own_memory)
        return outputs, SavedTape(tape, self._sizes[signature])

    def _code(self, chunk: int, *, replacing: bool = True) -> Any:
        """What `_build` has made."""
        if (chunk, replacing) not in self._training:
            self._training[chunk, replacing] = self._build(chunk, replacing=replacing)
        return self._training[chunk, replacing]

    def _count(self, size: int) -> None:
        self.kept_bytes += size
        self.peak_kept_bytes = max(self.peak_kept_bytes, self.kept_bytes)

    def _piece(self, chunk: int) -> Piece:
        if not 0 <= chunk < len(self.pieces):
            raise ConfigurationError(
                f"chunk is {chunk}, and this stage holds {len(self.pieces)}: they are counted from 0"
            )
        return self.pieces[chunk]

    def _check_complete(self, piece: Piece, inputs: Arrays) -> None:
        expected = piece.network.inputs
        if inputs.keys() == expected.keys():
            return
        for name in inputs:
            if name not in expected:
                raise _unknown(piece, name)
        missing = [name for name in expected if name not in inputs]
        name = missing[0]
        source = f"of piece {piece.incoming[name]}" if name in piece.incoming else "from outside"
        raise ConfigurationError(
            f"forward needs the input {name!r} ({expected[name]}, {source}) of {piece!r}: the inputs given "
            f"are {', '.join(map(repr, inputs)) or 'none'}"
        )

    def _signature(self, chunk: int, inputs: Arrays) -> Any:
        """The types and shapes, which are remembered. Raises `ConfigurationError` unless they are right."""
        try:
            signature = (chunk, *[(name, array.shape, array.dtype) for name, array in inputs.items()])
            if signature in self._sizes:
                return signature
        except (AttributeError, TypeError):
            signature = ()  # what is wrong with it is said below
        kinds = {}
        network = self.pieces[chunk].network
        for name, array in inputs.items():
            try:
                kinds[name] = self.library.type_of(array), tuple(map(int, array.shape))
            except (AttributeError, TypeError) as error:
                raise ConfigurationError(
                    f"the input {name!r} is a {type(array).__name__}, expected an array of {self.framework}, "
                    f"{network.inputs[name]}: `put` makes one of a NumPy array"
                ) from error
        check_kinds(network, kinds)
        if len(self._sizes) >= MOST_SIGNATURES:
            self._sizes.clear()
        self._sizes[signature] = NOT_COUNTED
        return signature


def _checked(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """The pieces as a tuple. Raises `ConfigurationError` unless they are of one network, in their order."""
    found = tuple(pieces)
    if not found:
        raise ConfigurationError("a stage holds at least one piece of a network: give some of pieces(...)")
    for before, after in pairwise(found):
        if before.count != after.count or before.index >= after.index:
            raise ConfigurationError(
                f"{after!r} follows {before!r}: give pieces of one network, each once and in their order"
            )
    return found


def _check_gradients(piece: Piece, gradients: Mapping[str, Array | float]) -> None:
    outputs = piece.network.outputs
    for name in gradients:
        if name not in outputs or (name in piece.outgoing and name not in piece.differentiated):
            known = [each for each in outputs if each not in piece.outgoing or each in piece.differentiated]
            raise ConfigurationError(
                f"{piece!r} gives no tensor {name!r} that is differentiated: {nearest(name, known)}"
            )
    for name, readers in piece.outgoing.items():
        if name in piece.differentiated and name not in gradients:
            raise ConfigurationError(
                f"backward of {piece!r} lacks the gradient of {name!r}, which piece "
                f"{' and piece '.join(map(str, readers))} read: their backward passes give it"
            )


def _unknown(piece: Piece, name: str) -> ConfigurationError:
    return ConfigurationError(f"{piece!r} has no input {name!r}: {nearest(name, piece.network.inputs)}")
