"""One pass of one stage: takes what others made, computes, hands over what others need, tells of gradients"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.distributed.scheduler import Scheduler
from d5ray.kits.parallel.pipeline.actions import Action, Backward
from d5ray.kits.parallel.pipeline.measured_times import Stopwatch
from d5ray.kits.parallel.pipeline.messages import Message, PassMessages, Route, Turn, answered
from d5ray.kits.parallel.pipeline.tensor_encoding import TensorCodec
from d5ray.kits.parallel.pipeline.transport import StageTransport
from d5ray.kits.parallel.stages.piece import Piece
from d5ray.kits.parallel.stages.piece_executor import PieceExecutor
from d5ray.networks.executors.flat_buffers import Slot
from d5ray.networks.executors.gradient_buckets import Announcer

HostArray = np.ndarray[Any, Any]
Key = tuple[str, int, int, bool]  # tensor, micro-batch, the piece that made it, whether it is a gradient
Takes = Callable[[Action, int], float]  # an action over that many samples -> seconds


@final
@dataclass(frozen=True)
class StageContext:
    """Everything that a stage has for all its passes.

    carrier   None where there is one stage
    takes     seconds that pass with every action, beside those of its computation
    """

    executor: PieceExecutor
    route: Route
    wire: TensorCodec
    carrier: StageTransport | None
    scheduler: Scheduler
    takes: Takes | None


@final
class Pass:
    """A pass under way.

    outside   what comes from outside, by name: an array for each micro-batch; labels are left out where there
              are none
    weights   of the micro-batches: their shares of the batch, by which the loss is weighted
    sizes     the open sizes of the whole network, of each micro-batch
    made      of the results of the whole network that were asked for and are this stage's: an array for each
              micro-batch
    times     of the turns, when they are over: see `Stopwatch`
    """

    def __init__(
        self,
        stage: StageContext,
        passage: PassMessages,
        outside: Mapping[str, Sequence[HostArray]],
        weights: Sequence[float],
        results: Iterable[str],
        loss: str,
        sizes: Sequence[Mapping[str, int]],
    ) -> None:
        self._stage, self._passage = stage, passage
        self._outside, self._weights, self._loss = outside, weights, loss
        self._sizes = sizes
        self._samples = [len(part) for part in next(iter(outside.values()))]
        self.made: dict[str, list[Any]] = {name: [] for name in results}
        self.times = np.empty(0)
        self._watch = Stopwatch(stage.scheduler.now())
        self._asked: set[Message] = set()
        self._held: dict[Key, tuple[Any, int]] = {}  # an array, and how often it will be read yet

    def turns(self) -> Iterable[Turn]:
        """The turns, for each of which the caller calls `forward`, `inference` or `backward`."""
        turns = self._passage.turns
        for place, turn in enumerate(turns):
            for coming in turns[place : place + 2]:  # what the next one needs travels during this one
                self._ask(coming.needed)
            yield turn
        self.times = self._watch.row(self._stage.scheduler.now())

    def step(self, turn: Turn) -> None:
        """A chunk forwards or backwards, as it trains."""
        action, piece, executor = turn.action, self._piece(turn), self._stage.executor
        if isinstance(action, Backward):
            slopes = self._slopes(turn, piece)
            gradients = self._timed(turn, lambda: executor.backward(action.chunk, action.micro, slopes))
            for name, gradient in gradients.items():
                if self._stage.route.stage_of(piece.incoming[name]) == self._stage.route.stage:
                    self._held[name, action.micro, piece.index, True] = gradient, 1
            self._send(turn.sent, gradients)
        else:
            inputs = self._inputs(turn, piece)
            outputs = self._timed(turn, lambda: executor.forward(action.chunk, action.micro, inputs))
            self._hand_on(turn, piece, outputs)

    def infer(self, turn: Turn) -> None:
        """A chunk forwards, in evaluation mode."""
        piece, executor = self._piece(turn), self._stage.executor
        inputs = self._inputs(turn, piece)
        outputs = self._timed(turn, lambda: executor.inference(turn.action.chunk, inputs))
        self._hand_on(turn, piece, outputs)

    def sum_ties(self) -> None:
        """Add up the gradients of parameters that several stages hold, in the order of the stages."""
        stage, ties = self._stage, self._passage.ties
        slots = {slot.name: slot for slot in stage.executor.slots}
        views, own = {}, {}
        for name in dict.fromkeys(message.tensor for message in ties):
            begin = slots[name].offset
            views[name] = stage.executor.gradients[begin : begin + slots[name].size]
            own[name] = np.array(stage.executor.get(views[name]))  # which is sent while the sum is written
        answers = [answered(message) for message in ties]
        self._ask(answers)
        self._send(ties, {name: stage.executor.put(array) for name, array in own.items()})
        parts = {(each.tensor, each.source): stage.executor.get(self._received(each)) for each in answers}
        for name, view in views.items():
            first, *others = [
                own[name] if holder == stage.route.stage else parts[name, holder]
                for holder in stage.route.tied[name]
            ]
            view[...] = stage.executor.put(sum(others, start=first))

    def finish(self) -> None:
        """Return when all that was sent has been received."""
        if self._stage.carrier is not None:
            self._stage.carrier.finish()

    # -- what comes ------------------------------------------------------------------------------------

    def _inputs(self, turn: Turn, piece: Piece) -> dict[str, Any]:
        for message in turn.needed:
            self._hold(message)
        found, executor = {}, self._stage.executor
        for name, descriptor in piece.network.inputs.items():
            if name in piece.incoming:
                key = (name, turn.action.micro, piece.incoming[name], False)
                if key in self._held:
                    found[name] = self._read(key)
            elif name in self._outside:
                part = self._outside[name][turn.action.micro]
                found[name] = executor.put(part.astype(descriptor.dtype, copy=False))
        return found

    def _slopes(self, turn: Turn, piece: Piece) -> dict[str, Any]:
        """The gradients of a piece's outputs, each the sum over its readers, last to first as they come."""
        for message in turn.needed:
            self._hold(message)
        micro, found = turn.action.micro, {}
        for name, readers in piece.outgoing.items():
            if name in piece.differentiated:
                first, *others = [self._read((name, micro, each, True)) for each in reversed(readers)]
                found[name] = sum(others, start=first)
        if self._loss in piece.results:
            found[self._loss] = self._weights[micro]
        return found

    def _ask(self, messages: Iterable[Message]) -> None:
        carrier = self._stage.carrier
        for message in messages:
            if message not in self._asked:
                self._asked.add(message)
                assert carrier is not None, "one stage needs nothing of others"
                carrier.ask(message)

    def _hold(self, message: Message) -> None:
        """Take what came, for all pieces of this stage that read it."""
        key = (message.tensor, message.micro, message.piece, message.is_gradient)
        if key not in self._held:
            readers = 1 if message.is_gradient else self._stage.route.readers_here(message.tensor)
            self._held[key] = self._received(message), readers

    def _received(self, message: Message) -> Any:
        stage = self._stage
        assert stage.carrier is not None
        begin = stage.scheduler.now()
        array = stage.carrier.take(message)
        came = stage.scheduler.now()
        found = stage.wire.incoming(array)
        self._watch.wait_ns += came - begin
        self._watch.send_ns += stage.scheduler.now() - came
        return found

    def _read(self, key: Key) -> Any:
        array, readers = self._held.pop(key)
        if readers > 1:
            self._held[key] = array, readers - 1
        return array

    # -- what goes -------------------------------------------------------------------------------------

    def _hand_on(self, turn: Turn, piece: Piece, outputs: Mapping[str, Any]) -> None:
        route = self._stage.route
        for name in self.made:
            if name in piece.results:
                self.made[name].append(outputs[name])
        for name in piece.outgoing:
            if name in outputs and (readers := route.readers_here(name)):
                self._held[name, turn.action.micro, piece.index, False] = outputs[name], readers
        self._send(turn.sent, outputs)

    def _send(self, messages: Iterable[Message], arrays: Mapping[str, Any]) -> None:
        stage = self._stage
        begin = stage.scheduler.now()
        ready: dict[str, Any] = {}
        for message in messages:
            assert stage.carrier is not None
            if message.tensor not in ready:
                ready[message.tensor] = stage.wire.outgoing(arrays[message.tensor])
            stage.carrier.give(message, ready[message.tensor])
        self._watch.send_ns += stage.scheduler.now() - begin

    # --------------------------------------------------------------------------------------------------

    def _piece(self, turn: Turn) -> Piece:
        return self._stage.route.pieces[turn.action.chunk]

    def _timed(self, turn: Turn, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The result of an action, whose time the stopwatch takes."""
        stage = self._stage
        if stage.executor.collectives is not None:
            stage.executor.collectives.sizes = self._sizes[turn.action.micro]
        begin = stage.scheduler.now()
        found = compute()
        stage.executor.synchronize()
        if stage.takes is not None:
            stage.scheduler.sleep(stage.takes(turn.action, self._samples[turn.action.micro]))
        self._watch.spans.append((begin, stage.scheduler.now()))
        return found


@final
class Announced:
    """Tells which gradients are complete, in the last backward passes of the chunks."""

    def __init__(self, announcer: Announcer, route: Route, now: Callable[[], int]) -> None:
        self._announcer, self._route, self._now = announcer, route, now
        self._left = set(range(len(route.pieces)))  # chunks
        self.nanoseconds = 0

    def chunk(self, chunk: int, slots: tuple[Slot, ...]) -> None:
        """Announce what is complete with this chunk's last backward pass: nothing else adds to it."""
        self._left.discard(chunk)
        begin, pieces = self._now(), self._route.pieces
        waiting = {name for each in self._left for name in pieces[each].network.parameters}
        for place, slot in enumerate(slots):
            own = slot.name in pieces[chunk].network.parameters
            if own and slot.name not in waiting and slot.name not in self._route.tied:
                self._announcer.arrived(place)
        self.nanoseconds += self._now() - begin

    def rest(self) -> None:
        """Announce what is left: the pass is over."""
        begin = self._now()
        self._announcer.finish()
        self.nanoseconds += self._now() - begin
