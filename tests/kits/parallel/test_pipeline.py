"""Claims about pipelines: their results are those of one place, whatever cut, schedule and world"""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pytest

import d5ray.frameworks.numpy as in_numpy
import d5ray.frameworks.torch as in_torch
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.errors import ConfigurationError, D5Error, PeerLost
from d5ray.frameworks.initial_values import network_by_name
from d5ray.kits.parallel.pipeline.actions import Action, Backward, Forward
from d5ray.kits.parallel.pipeline.executor import PipelineExecutor
from d5ray.kits.parallel.pipeline.negotiation import NetworkEnds
from d5ray.kits.parallel.pipeline.schedule import PipelineSchedule
from d5ray.kits.parallel.pipeline.schedules import (
    GPipe,
    Interleaved,
    NaiveModelParallelism,
    OneFOneB,
)
from d5ray.kits.parallel.stages.cut import Cut
from d5ray.kits.parallel.stages.cutting import pieces
from d5ray.networks.executors.labelled_network import labelled
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from tests.distributed.forming import Former, on_all
from tests.kits.parallel.pipelines import (
    BATCHES,
    ENDS,
    LOSS,
    Result,
    batch,
    check_equal,
    cut,
    in_one_piece,
    named,
    network,
    pipeline,
    trained,
    trained_in,
)
from tests.patience import patience

SCHEDULES = [NaiveModelParallelism(), GPipe(), OneFOneB(), Interleaved(2)]
MICRO_BATCHES = [1, 3, 4, 8]
NOTICED_SECONDS = 5.0


@final
@dataclass(frozen=True)
class FirstInLastOut(PipelineSchedule):
    """A schedule of one's own: as GPipe's figure has it."""

    def of_stage(self, stage: int, stages: int, micro_batches: int) -> Iterator[Action]:
        yield from (Forward(0, micro) for micro in range(micro_batches))
        yield from (Backward(0, micro) for micro in reversed(range(micro_batches)))


@pytest.fixture(scope="module")
def whole() -> Network:
    return network()


@pytest.fixture(scope="module")
def expected(whole: Network) -> dict[int, Result]:
    """The oracle by the number of micro-batches."""
    return {micro: in_one_piece(whole, BATCHES, micro) for micro in MICRO_BATCHES}


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_every_schedule_gives_what_one_piece_gives(
    groups: Former,
    whole: Network,
    expected: dict[int, Result],
    schedule: PipelineSchedule,
    stages: int,
) -> None:
    """With Dropout, BatchNormalization, a tied weight, skip edges, unequal micro-batches, and recomputed."""
    group = groups.members("shared_memory" if stages > 1 else "auto", stages)
    for micro_batches, recompute in ((1, False), (3, True), (4, True), (8, False)):
        found = trained_in(group, whole, schedule, micro_batches, recompute=recompute)
        check_equal(found, expected[micro_batches], 1e-10)


@pytest.mark.full
@pytest.mark.parametrize("backend", ["socket", "simulated"])
@pytest.mark.parametrize("schedule", [*SCHEDULES[2:], FirstInLastOut()], ids=repr)
def test_results_are_the_same_over_sockets_and_in_the_simulation(
    groups: Former, whole: Network, expected: dict[int, Result], schedule: PipelineSchedule, backend: str
) -> None:
    check_equal(trained_in(groups.members(backend, 3), whole, schedule, 4), expected[4], 1e-10)


def test_one_order_of_all_messages_gives_the_same(
    groups: Former, whole: Network, expected: dict[int, Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What NCCL needs, in which a process can do one thing at a time, works with every communicator."""
    monkeypatch.setattr("d5ray.kits.parallel.pipeline.executor.ONE_AT_A_TIME", ("shared_memory", "simulated"))
    for backend, schedule in itertools.product(("shared_memory", "simulated"), SCHEDULES):
        check_equal(trained_in(groups.members(backend, 3), whole, schedule, 4), expected[4], 1e-10)


@pytest.mark.parametrize("schedule", SCHEDULES[2:], ids=repr)
def test_pytorch_stages_agree_in_single_precision(groups: Former, schedule: PipelineSchedule) -> None:
    whole = network("float32")
    batches = [batch(10, seed, "float32") for seed in (1, 2)]
    expected = in_one_piece(whole, batches, 3, in_torch.from_pieces)
    members, make = groups.members("shared_memory", 2), in_torch.from_pieces
    found = trained_in(members, whole, schedule, 3, batches, make=make, recompute=True)
    check_equal(found, expected, 1e-5)


def test_a_batch_smaller_than_the_number_of_micro_batches_has_one_for_each_sample(
    groups: Former, whole: Network
) -> None:
    few = [batch(2, seed=3)]
    found = trained_in(groups.members("shared_memory", 2), whole, OneFOneB(), 8, few)
    check_equal(found, in_one_piece(whole, few, 8), 1e-10)


def test_scores_and_evaluation_are_known_on_every_stage(groups: Former, whole: Network) -> None:
    inputs, labels = batch(23, seed=4)
    (piece,) = cut(whole, 1)
    oracle = in_numpy.from_pieces([piece])
    scores = oracle.inference(0, {"x": inputs})["scores"]

    def own(member: Communicator) -> tuple[Any, Any]:
        with pipeline(whole, member, Interleaved(2), 4) as executor:
            return executor.inference(inputs), executor.evaluate(inputs, labels)

    for found, evaluation in on_all(groups.members("shared_memory", 3), own):
        np.testing.assert_allclose(found, scores, rtol=1e-12)
        assert evaluation.loss == pytest.approx(LOSS.numpy(scores, labels), rel=1e-12)
        assert evaluation.accuracy == (scores.argmax(axis=-1) == labels).mean()


def test_evaluating_changes_nothing_that_is_trained(groups: Former, whole: Network) -> None:
    """Neither running statistics nor what Dropout draws next."""

    def own(member: Communicator) -> Result:
        with pipeline(whole, member, GPipe(), 4) as executor:
            executor.draw_from(5, 0)
            before = executor.named_state()
            executor.evaluate(*batch(7))
            for name, value in executor.named_state().items():
                np.testing.assert_array_equal(value, before[name])
            return trained(executor, BATCHES)

    check_equal(on_all(groups.members("shared_memory", 2), own), in_one_piece(whole, BATCHES, 4), 1e-10)


@pytest.mark.parametrize("schedule", [*SCHEDULES, FirstInLastOut()], ids=repr)
def test_buckets_are_announced_in_order_and_complete(
    groups: Former, whole: Network, expected: dict[int, Result], schedule: PipelineSchedule
) -> None:
    def own(member: Communicator) -> None:
        with pipeline(whole, member, schedule, 4) as executor:
            executor.draw_from(5, 0)
            ranges = executor.buckets(200)
            announced: list[tuple[int, int]] = []
            copied = np.full_like(executor.gradients, np.nan)

            def on_ready(begin: int, end: int) -> None:
                announced.append((begin, end))
                copied[begin:end] = executor.gradients[begin:end]
                executor.gradients[begin:end] = np.nan  # it is the callee's now

            executor.inference_and_backprop(*BATCHES[0], on_ready)
            assert tuple(announced) == ranges and len(ranges) > 1
            executor.draw_from(5, 0)
            executor.inference_and_backprop(*BATCHES[0])
            np.testing.assert_array_equal(copied, executor.gradients)

    on_all(groups.members("shared_memory", 2), own)


def test_parameters_move_into_memory_of_the_callers(groups: Former, whole: Network) -> None:
    def own(member: Communicator) -> Result:
        with pipeline(whole, member, OneFOneB(), 4) as executor:
            executor.use_buffers(lambda count, dtype: np.empty(count, dtype))
            assert executor.parameters is executor.executor.parameters
            return trained(executor, BATCHES)

    check_equal(on_all(groups.members("shared_memory", 2), own), in_one_piece(whole, BATCHES, 4), 1e-10)


def test_a_pass_goes_on_from_its_random_state(groups: Former, whole: Network) -> None:
    def own(member: Communicator) -> None:
        with pipeline(whole, member, GPipe(), 4) as executor:
            executor.draw_from(5, 0)
            executor.inference_and_backprop(*BATCHES[0])
            state = executor.random_state()
            losses = []
            for _ in range(2):
                executor.set_random_state(state)
                losses.append(executor.inference_and_backprop(*BATCHES[1]))
            assert losses[0] == losses[1]
            assert executor.inference_and_backprop(*BATCHES[1]) != losses[0]

    on_all(groups.members("shared_memory", 2), own)


def test_a_tensor_of_unknown_shape_travels_with_its_shape(groups: Former) -> None:
    """Nobody knows the second axis before there is a batch, and it differs from batch to batch."""
    open_ended = Network("open")
    with open_ended.changes():
        open_ended.add_input("x", TensorDescriptor("float64", ("batch", None)))
        open_ended.add_parameter("scale", np.full(1, 0.5))
        open_ended.add_node(Node("Mul", ("x", "scale"), ("scaled",), {}, "first"))
        open_ended.add_node(Node("Tanh", ("scaled",), ("bent",), {}, "begin4"))
        open_ended.add_node(Node("Mul", ("bent", "scale"), ("scores",), {}, "last"))
        open_ended.add_output("scores")
    open_ended.add_loss("MeanSquaredError", "scores", "labels", "loss")
    rng = np.random.default_rng(0)
    batches = [(rng.random((6, width)), rng.random((6, width))) for width in (3, 5)]

    def own(member: Communicator) -> Result:
        with pipeline(open_ended, member, OneFOneB(), 4) as executor:
            assert executor._agreement.kind("scaled", {"batch": 2}) is None
            return trained(executor, batches)

    check_equal(on_all(groups.members("shared_memory", 2), own), in_one_piece(open_ended, batches, 4), 1e-10)


def test_a_transformer_in_stages_has_the_gradients_of_the_whole(groups: Former) -> None:
    """Against another executor of d5ray: that of the whole graph, on the whole batch at once."""
    own_kind = labelled(
        network_by_name("transformer", {"width": 8, "heads": 2}, (6,), 11, seed=1), LOSS, (6,)
    )
    rng = np.random.default_rng(1)
    inputs, labels = rng.integers(0, 11, (8, 6)), rng.integers(0, 11, (8, 6))
    oracle = in_numpy.from_onnx(own_kind.network)
    outputs = oracle.inference_and_backprop({own_kind.inputs: inputs, own_kind.labels: labels}, own_kind.loss)
    expected = {
        name: oracle.network.fetch_tensors([g])[0] for name, g in oracle.network.gradient(own_kind.loss)
    }
    nodes = [node.name for node in own_kind.network.nodes]
    parts = pieces(own_kind.network, Cut((nodes[len(nodes) // 3], nodes[2 * len(nodes) // 3])))

    def own(member: Communicator) -> None:
        executor = in_numpy.from_pieces([parts[member.rank]])
        made = PipelineExecutor(executor, member, GPipe(), 4, own_kind, LOSS)
        loss = made.inference_and_backprop(inputs, labels)
        assert loss == pytest.approx(float(outputs[own_kind.loss]), rel=1e-5)
        for name, gradient in named(made, made.gradients).items():
            np.testing.assert_allclose(gradient, expected[name], rtol=1e-4, atol=1e-6)
        made.close()

    on_all(groups.members("shared_memory", 3), own)


# -- time ----------------------------------------------------------------------------------------------


def _steadily(action: Action, samples: int) -> float:
    return 1.0 if isinstance(action, Forward) else 2.0


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_on_the_virtual_clock_the_bubble_is_the_formulas(
    groups: Former, whole: Network, schedule: PipelineSchedule, stages: int
) -> None:
    """All but for what messages take there, 50 µs and less."""

    def own(member: Communicator) -> Any:
        with pipeline(whole, member, schedule, 12, takes=_steadily) as executor:
            executor.inference_and_backprop(*batch(12))
            return executor.last_pass

    for found in on_all(groups.members("simulated", stages), own):
        assert found.bubble == pytest.approx(schedule.bubble(stages, 12), abs=1e-3)
        assert found.seconds == pytest.approx(schedule.predicted(stages, 12).seconds, abs=0.05)
        for stage in found.stages:
            assert stage.compute == pytest.approx(12 * 3.0 * schedule.chunks)
            assert stage.compute + stage.send + stage.idle == pytest.approx(found.seconds)
            assert 0 <= stage.wait <= stage.idle + 1e-9


def test_one_forward_one_backward_keeps_fewer_activations(groups: Former, whole: Network) -> None:
    def peak(schedule: PipelineSchedule) -> list[int]:
        def own(member: Communicator) -> int:
            with pipeline(whole, member, schedule, 8) as executor:
                executor.inference_and_backprop(*batch(16))
                return executor.executor.peak_kept_bytes

        return on_all(groups.members("shared_memory", 2), own)

    all_kept, few = peak(GPipe()), peak(OneFOneB())
    assert few[0] == pytest.approx(all_kept[0] * 2 / 8, rel=0.05)
    assert few[1] == pytest.approx(all_kept[1] * 1 / 8, rel=0.05)


# -- trouble -------------------------------------------------------------------------------------------


def _ending(groups: Former, whole: Network, backend: str, trouble: Any) -> list[tuple[str, float]]:
    """How each of four stages ends, and how many seconds after the trouble at stage 1, in its second pass."""
    begun: list[float] = []

    def own(member: Communicator) -> tuple[str, float]:
        def takes(action: Action, samples: int) -> float:
            if member.rank == 1 and executor.executor.seeds.passes == 2 and action == Forward(0, 2):
                begun.append(time.monotonic())
                trouble(member)
            return 0.001

        try:
            with pipeline(whole, member, OneFOneB(), 4, takes=takes) as executor:
                for _ in range(50):
                    executor.inference_and_backprop(*batch(8))
        except (D5Error, ArithmeticError) as error:
            ended = time.monotonic()
            with pytest.raises(PeerLost):
                executor.inference_and_backprop(*batch(8))
            return type(error).__name__, ended - begun[0]
        return "nothing", 0.0

    return on_all(groups.form(backend, 4), own)


@pytest.mark.full
@pytest.mark.parametrize("backend", ["shared_memory", "socket"])
def test_a_stage_that_raises_ends_the_others(groups: Former, whole: Network, backend: str) -> None:
    def raises(member: Communicator) -> None:
        raise ZeroDivisionError

    found = _ending(groups, whole, backend, raises)
    assert [name for name, _ in found] == ["PeerLost", "ZeroDivisionError", "PeerLost", "PeerLost"]
    assert max(seconds for _, seconds in found) < patience(NOTICED_SECONDS)


WRONG: dict[str, Callable[[int], dict[str, Any]]] = {  # what stage `rank` of two gives; words of the error
    "micro_batches is 0": lambda rank: {"micro_batches": 0},
    "over 2 stages needs 4 pieces, 2 a stage, and the network is cut into 2": lambda rank: {
        "schedule": Interleaved(2)
    },
    "schedule is '1f1b': it must be a PipelineSchedule": lambda rank: {"schedule": "1f1b"},
    "differ in micro_batches: stage 0 has 4, stage 1 has 5": lambda rank: {"micro_batches": 4 + rank},
    "differ in schedule: stage 0 has GPipe with .*, stage 1 has OneFOneB with": lambda rank: {
        "schedule": (GPipe(), OneFOneB())[rank]
    },
    r"not of one cut: only piece . has it that 'tanh.\.out'": lambda rank: {  # each has cut it for itself
        "cut": Cut((f"begin{3 + rank}",))
    },
    "makes 'score': did you mean 'scores'": lambda rank: {
        "ends": NetworkEnds("x", "score", "labels", "loss")
    },
    "stage 1 of 2 computes the pieces .1., and its executor has .0.|left": lambda rank: {"piece": 0},
}


@pytest.mark.parametrize("backend", ["shared_memory", "socket", "simulated"])
@pytest.mark.parametrize("says", WRONG)
def test_what_does_not_fit_or_differs_is_refused_on_all(
    groups: Former, whole: Network, says: str, backend: str
) -> None:
    def own(member: Communicator) -> None:
        wrong = WRONG[says](member.rank)
        parts = pieces(whole, wrong["cut"]) if "cut" in wrong else cut(whole, 2)
        executor = in_numpy.from_pieces([parts[wrong.get("piece", member.rank)]])
        schedule, micro_batches = wrong.get("schedule", GPipe()), wrong.get("micro_batches", 4)
        with pytest.raises(D5Error, match=says):
            PipelineExecutor(executor, member, schedule, micro_batches, wrong.get("ends", ENDS), LOSS)

    on_all(groups.form(backend, 2), own)


def test_an_empty_batch_is_refused_and_the_pipeline_goes_on(groups: Former, whole: Network) -> None:
    def own(member: Communicator) -> None:
        with pipeline(whole, member, GPipe(), 4) as executor:
            with pytest.raises(ConfigurationError, match="no samples"):
                inputs, labels = batch(1)
                executor.inference_and_backprop(inputs[:0], labels[:0])
            executor.inference_and_backprop(*batch(8))

    on_all(groups.members("shared_memory", 2), own)
