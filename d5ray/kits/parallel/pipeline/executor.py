"""PipelineExecutor: a network over the stages of a pipeline, as one executor"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, final

import numpy as np

from d5ray.checks import check_count
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.errors import ConfigurationError, PeerLost
from d5ray.identity.canonical import digest
from d5ray.kits.parallel.pipeline.actions import Actions, Backward, Forward
from d5ray.kits.parallel.pipeline.measured_times import PassTimes, pass_times
from d5ray.kits.parallel.pipeline.messages import TIED, Message, PassMessages, Route, passage
from d5ray.kits.parallel.pipeline.negotiation import NetworkEnds, agree
from d5ray.kits.parallel.pipeline.passes import Announced, Pass, StageContext, Takes
from d5ray.kits.parallel.pipeline.schedule import PipelineSchedule
from d5ray.kits.parallel.pipeline.tensor_encoding import Kind, TensorCodec
from d5ray.kits.parallel.pipeline.transport import Ordered, PairChannels, StageTransport
from d5ray.kits.parallel.stages.piece_executor import PieceExecutor
from d5ray.networks.executors.evaluation import concluded, judged, samples_at_once
from d5ray.networks.executors.executor import Evaluation, Executor, now_of
from d5ray.networks.executors.gradient_buckets import OnReady
from d5ray.networks.executors.labelled_network import LabelledNetwork
from d5ray.operators.loss import Loss

Array = np.ndarray[Any, Any]
ONE_AT_A_TIME = ("nccl",)  # communicators of which a process runs one operation at a time


@final
class PipelineExecutor(Executor):
    """One stage of a network; a group of workers, one per stage, computes every batch together.

    All stages call the same methods at the same time with the same arguments. A batch (batch, ...) is cut
    along its first axis into `micro_batches` nearly equal parts, or as many as it has samples; the loss, and
    so the gradient, is the mean over the whole batch. Every stage returns loss, evaluation and scores.
    Dropout and BatchNormalization apply per micro-batch: the result equals that of one worker with the same
    micro-batches, whatever the stages and the schedule.

    executor        of this stage's pieces: those numbered stage, stage + stages, …, one for every chunk of
                    the schedule. `parameters`, `gradients` and the rest are its own. The gradient of a
                    parameter that several stages hold is summed over them, so that they stay equal.
    communicator    of the stages: a member's rank is its stage; None: given later to `join`. Two stages that
                    exchange tensors form a sub-group for each direction.
    ends            the names of the network's tensors, from a `LabelledNetwork`, which is not kept
    loss            for evaluations
    takes           (action, samples) -> seconds that pass on the communicator's clock with every action,
                    besides those of its computation: for simulations, whose clock has no others

    If a stage is lost or raises an error, the others raise `PeerLost` within seconds and leave the group.
    After every training pass `last_pass` has, on every stage, its times and the bubble. Raises
    `ConfigurationError` if pieces, stages and schedule do not fit together, or the stages differ.
    """

    def __init__(
        self,
        executor: PieceExecutor,
        communicator: Communicator | None,
        schedule: PipelineSchedule,
        micro_batches: int,
        ends: NetworkEnds | LabelledNetwork,
        loss: Loss,
        *,
        takes: Takes | None = None,
    ) -> None:
        check_count("micro_batches", micro_batches)
        self.executor, self.schedule = executor, schedule
        self.micro_batches = micro_batches
        self.ends, self.loss = ends if isinstance(ends, NetworkEnds) else NetworkEnds.of(ends), loss
        self.last_pass: PassTimes | None = None
        self._closed = True
        self._carrier: StageTransport | None = None
        self._passages: dict[tuple[int, bool], tuple[Actions, PassMessages]] = {}
        self._hold(executor)
        if communicator is not None:
            self.join(communicator, takes)

    def join(self, communicator: Communicator, takes: Takes | None = None) -> None:
        """Connect to the other stages, if no communicator was given before. All of them call it together."""
        self.communicator, self._closed = communicator, False
        try:
            _check_pieces(self.executor, communicator, self.schedule)
            self._form(takes)
        except BaseException:
            self._leave()
            raise

    @property
    def stage(self) -> int:
        """The number of this stage, from 0."""
        return self.communicator.rank

    @property
    def stages(self) -> int:
        """The number of stages."""
        return self.communicator.size

    # -- passes ----------------------------------------------------------------------------------------

    def inference(self, inputs: Array) -> Array:
        given = _cut(inputs, min(self.micro_batches, len(inputs)))
        parts: list[Array] = []
        with self._leaving_on_error():
            self._infer(given, lambda micro, scores: parts.append(scores))
            return self._told(np.concatenate(parts) if parts else None)

    def evaluate(self, inputs: Array, labels: Array) -> Evaluation:
        found = np.zeros(2)  # the sum of the losses, and how many are right
        at_once = samples_at_once(inputs, labels.size)
        count = max(min(self.micro_batches, len(inputs)), -(-len(inputs) // at_once))
        given, truths = _cut(inputs, count), _cut(labels, count)

        def judge(micro: int, scores: Array) -> None:
            mean, right, _ = judged(self.loss, scores, truths[micro])
            found[...] += mean * len(truths[micro]), right

        with self._leaving_on_error():
            self._infer(given, judge)
            total, right = self._told(found if self._makes_scores else None).tolist()
        return concluded(self.loss, total, right, labels)

    def inference_and_backprop(self, inputs: Array, labels: Array, on_ready: OnReady | None = None) -> float:
        count = min(self.micro_batches, len(inputs))
        outside = {self.ends.inputs: _cut(inputs, count), self.ends.labels: _cut(labels, count)}
        weights = [len(part) / len(inputs) for part in outside[self.ends.inputs]]
        now = self._stage.scheduler.now
        with self._leaving_on_error():
            actions, passage = self._passage(count, trains=True)
            announced = Announced(self._announcer(on_ready), self._route, now) if on_ready else None
            run = self._begin(passage, outside, weights, self.ends.loss)
            self.executor.begin_pass()
            begin = now()
            for turn in run.turns():
                run.step(turn)
                if isinstance(turn.action, Backward):
                    if announced and turn.action in passage.completing:
                        announced.chunk(turn.action.chunk, self.executor.slots)
                    self.backward_ns += now() - begin
                else:
                    self.forward_ns += now() - begin
                begin = now()
            run.sum_ties()
            run.finish()
            loss = self._conclude(run, actions, weights)
            if announced:
                announced.rest()
                self.backward_ns -= announced.nanoseconds
            self.backward_ns += now() - begin
        return loss

    def _infer(self, parts: list[Array], take: Callable[[int, Array], None]) -> None:
        """The scores of each micro-batch, on the stage that makes them."""
        _, passage = self._passage(len(parts), trains=False)
        run = self._begin(passage, {self.ends.inputs: parts}, [1.0] * len(parts), self.ends.scores)
        made, micro = run.made.get(self.ends.scores, []), 0
        for turn in run.turns():
            run.infer(turn)
            while made:
                take(micro, np.asarray(self.executor.get(made.pop(0))))
                micro += 1
        run.finish()

    def _told(self, array: Array | None) -> Array:
        """The scores, as the stage that makes them has found them; the others give none."""
        maker = self._agreement.maker(self.ends.scores)
        return self._stage.wire.broadcast(self.communicator, array, maker)

    def _begin(
        self, passage: PassMessages, outside: Mapping[str, list[Array]], weights: list[float], result: str
    ) -> Pass:
        sizes = [
            self._agreement.sizes({name: parts[micro].shape for name, parts in outside.items()})
            for micro in range(len(weights))
        ]

        def kind_of(message: Message) -> Kind | None:
            return (
                None if message.micro == TIED else self._agreement.kind(message.tensor, sizes[message.micro])
            )

        if self._stage.carrier is not None:
            self._stage.carrier.begin(passage, kind_of)
        wanted = [result] if self._agreement.maker(result) == self.stage else []
        return Pass(self._stage, passage, outside, weights, wanted, self.ends.loss, sizes)

    def _conclude(self, run: Pass, actions: Actions, weights: list[float]) -> float:
        """Tell all stages the loss, and what each took."""
        losses = run.made.get(self.ends.loss, [])
        own = [float(self.executor.get(loss).reshape(())) for loss in losses]
        row = np.array([sum(w * loss for w, loss in zip(weights, own, strict=bool(own))), *run.times])
        rows = np.zeros((self.stages, len(row)))
        rows[self.stage] = row
        rows = self._stage.wire.all_gathered(self.communicator, rows)
        one_clock = len(set(self.communicator.group.nodes)) <= 1
        self.last_pass = pass_times(repr(self.schedule), actions, [row[1:] for row in rows], one_clock)
        return float(rows[self._agreement.maker(self.ends.loss), 0])

    def _passage(self, count: int, trains: bool) -> tuple[Actions, PassMessages]:
        """The actions of all stages for this many micro-batches, and this stage's part of them."""
        if (count, trains) not in self._passages:
            actions = self.schedule.actions(self.stages, count)
            table = self.schedule.predicted(self.stages, count)
            made_at = {
                (stage, span.action): span.end for stage, spans in enumerate(table.stages) for span in spans
            }
            if not trains:
                actions = tuple(tuple(each for each in own if isinstance(each, Forward)) for own in actions)
            withheld = () if trains else self._agreement.labelled
            self._passages[count, trains] = actions, passage(self._route, actions, made_at, withheld)
        return self._passages[count, trains]

    # -- what is this stage's own ----------------------------------------------------------------------

    random_state, set_random_state = now_of("executor.random_state"), now_of("executor.set_random_state")

    def draw_from(self, seed: int, rank: int) -> None:
        """Set the random stream, as `Executor.draw_from`; rank: the replica's, equal on all its stages."""
        self.executor.draw_from(seed, rank)

    def close(self) -> None:
        """Leave the groups of stage pairs, also after a loss; the communicator belongs to the caller."""
        self._closed = True
        carrier, self._carrier = self._carrier, None
        if carrier is not None:
            carrier.close()

    # --------------------------------------------------------------------------------------------------

    def _form(self, takes: Takes | None) -> None:
        executor, communicator = self.executor, self.communicator
        wire = TensorCodec(executor, communicator)
        self._route = Route(executor.pieces, communicator.rank, communicator.size)
        actions = self.schedule.actions(communicator.size, self.micro_batches)
        same = {
            "micro_batches": self.micro_batches,
            "schedule": f"{type(self.schedule).__name__} with the actions {digest(repr(actions))[:8]}",
            "the number of pieces": executor.pieces[0].count,
            "the names of inputs, scores, labels and loss": list(vars(self.ends).values()),
        }
        self._agreement = agree(communicator, wire, executor.pieces, same, self.ends.labels)
        for result in (self.ends.scores, self.ends.loss):
            self._agreement.maker(result)
        if communicator.size > 1:
            if communicator.backend in ONE_AT_A_TIME:
                self._carrier = Ordered(communicator, wire)
            else:
                self._carrier = PairChannels(communicator, wire, self._route.pairs())
        self._stage = StageContext(executor, self._route, wire, self._carrier, communicator.scheduler, takes)

    @property
    def _makes_scores(self) -> bool:
        return self._agreement.maker(self.ends.scores) == self.stage

    @contextmanager
    def _leaving_on_error(self) -> Iterator[None]:
        """Whatever ends a pass ends the pipeline: the others must not wait for this stage."""
        if self._closed:
            raise PeerLost(self.stage, "this stage has left its pipeline")
        try:
            yield
        except BaseException:
            self._leave()
            raise

    def _leave(self) -> None:
        self._closed = True
        if self._carrier is not None:
            self._carrier.leave()
        self.communicator.close()


def _check_pieces(executor: PieceExecutor, communicator: Communicator, schedule: PipelineSchedule) -> None:
    """Raise `ConfigurationError` unless this stage holds its pieces of a cut that fits."""
    if not isinstance(schedule, PipelineSchedule):
        raise ConfigurationError(
            f"schedule is {schedule!r}: it must be a PipelineSchedule such as OneFOneB()"
        )
    stage, stages, count = communicator.rank, communicator.size, executor.pieces[0].count
    wanted = stages * schedule.chunks
    if count != wanted:
        each = "" if schedule.chunks == 1 else f", {schedule.chunks} a stage"
        raise ConfigurationError(
            f"{schedule!r} over {stages} stages needs {wanted} pieces{each}, and the network is cut into "
            f"{count}: cut it into {wanted}, or take as many stages as there are pieces"
        )
    expected, found = list(range(stage, count, stages)), [piece.index for piece in executor.pieces]
    if found != expected:
        raise ConfigurationError(
            f"stage {stage} of {stages} computes the pieces {expected}, and its executor has {found}: give "
            "it pieces[stage::stages]"
        )


def _cut(array: Array, count: int) -> list[Array]:
    """The nearly equal parts of an array along its first axis, in order."""
    if not len(array):
        raise ConfigurationError("the batch has no samples: give at least one")
    edges = [len(array) * place // count for place in range(count + 1)]
    return [array[begin:end] for begin, end in pairwise(edges)]
