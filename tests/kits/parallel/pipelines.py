"""Pipelines for tests: a network with all that a cut can hurt, and the run of it in one piece"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

import d5ray.frameworks.numpy as in_numpy
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.kits.parallel.pipeline.executor import PipelineExecutor
from d5ray.kits.parallel.pipeline.negotiation import NetworkEnds
from d5ray.kits.parallel.pipeline.schedule import PipelineSchedule
from d5ray.kits.parallel.stages.cut import Cut
from d5ray.kits.parallel.stages.cutting import pieces
from d5ray.kits.parallel.stages.piece import Piece
from d5ray.kits.parallel.stages.piece_executor import PieceExecutor
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss
from tests.distributed.forming import on_all

Array = np.ndarray[Any, Any]
FromPieces = Callable[..., PieceExecutor]

BLOCKS, WIDTH, CLASSES = 8, 6, 3
TIED = "tied"  # the weight of the first block and of the last one but one
ENDS = NetworkEnds("x", "scores", "labels", "loss")
LOSS = SoftmaxCrossEntropyLoss()


def network(dtype: str = "float64", seed: int = 3) -> Network:
    """Blocks of a product, a BatchNormalization, a Dropout and Tanh, with a tied weight and two skip edges.

    The nodes with which the blocks begin are called "begin0", "begin1", …
    """
    rng = np.random.default_rng(seed)

    def values(*shape: int) -> Array:
        return (0.5 * rng.standard_normal(shape)).astype(dtype)

    made = Network("blocks")
    with made.changes():
        tensor = made.add_input("x", TensorDescriptor(dtype, ("batch", WIDTH)))
        made.add_parameter(TIED, values(WIDTH, WIDTH))
        made.add_constant("ratio", np.asarray(0.3, np.float32))
        made.add_constant("training", np.asarray(True))
        skipped: dict[int, str] = {}
        for block in range(BLOCKS):
            weight = (
                TIED if block in (0, BLOCKS - 2) else made.add_parameter(f"w{block}", values(WIDTH, WIDTH))
            )
            tensor = _node(made, "MatMul", f"begin{block}", tensor, weight)
            tensor = _node(
                made, "Add", f"bias{block}", tensor, made.add_parameter(f"b{block}", values(WIDTH))
            )
            if block % 3 == 1:
                tensor = _normalized(made, block, tensor, dtype)
            if block % 4 == 2:
                tensor = _node(made, "Dropout", f"drop{block}", tensor, "ratio", "training")
            if block in (4, 6):
                tensor = _node(made, "Add", f"skip{block}", tensor, skipped[1])
            tensor = skipped[block] = _node(made, "Tanh", f"tanh{block}", tensor)
        head = made.add_parameter("head", values(WIDTH, CLASSES))
        made.add_node(Node("MatMul", (tensor, head), ("scores",), {}, "scores"))
        made.add_output("scores")
    made.add_loss(LOSS, "scores", "labels", "loss")
    return made


def cut(whole: Network, count: int) -> tuple[Piece, ...]:
    """That many pieces, in whole blocks."""
    first = [BLOCKS * place // count for place in range(1, count)]
    return pieces(whole, Cut(tuple(f"begin{block}" for block in first)))


def batch(samples: int, seed: int = 0, dtype: str = "float64") -> tuple[Array, Array]:
    """Samples and their labels."""
    rng = np.random.default_rng([seed, samples])
    return rng.standard_normal((samples, WIDTH)).astype(dtype), rng.integers(0, CLASSES, samples)


BATCHES = [batch(10, seed=1), batch(10, seed=2)]  # 10 samples: parts are unequal for 3, 4 and 8


@dataclass
class Result:
    """What passes leave: losses, and by name the last gradients, the parameters, the running statistics."""

    losses: list[float]
    gradients: dict[str, Array]
    parameters: dict[str, Array]
    state: dict[str, Array]


def named(executor: Any, flat: Any) -> dict[str, Array]:
    """The parts of a flat array by the names of the executor's slots."""
    whole = np.asarray(flat)
    return {s.name: whole[s.offset : s.offset + s.size].reshape(s.shape).copy() for s in executor.slots}


def in_one_piece(
    whole: Network,
    batches: Sequence[tuple[Array, Array]],
    micro_batches: int,
    make: FromPieces = in_numpy.from_pieces,
    rate: float = 0.1,
    seed: int = 5,
) -> Result:
    """The oracle: one executor of the whole network, one micro-batch after the other."""
    (piece,) = cut(whole, 1)
    executor = make([piece])
    executor.draw_from(seed, 0)
    losses = []
    for inputs, labels in batches:
        losses.append(one_pass(executor, inputs, labels, micro_batches))
        gradients = named(executor, executor.gradients)
        executor.parameters[...] -= rate * executor.gradients
    return Result(losses, gradients, named(executor, executor.parameters), executor.named_state())


def one_pass(executor: PieceExecutor, inputs: Array, labels: Array, micro_batches: int) -> float:
    """The loss of a batch, by an executor of the whole network; the gradient is in the executor then."""
    executor.begin_pass()
    count = min(micro_batches, len(inputs))
    edges = [len(inputs) * place // count for place in range(count + 1)]
    total = 0.0
    for micro, (begin, end) in enumerate(pairwise(edges)):
        given = {"x": inputs[begin:end], "labels": labels[begin:end]}
        outputs = executor.forward(0, micro, {name: executor.put(part) for name, part in given.items()})
        weight = (end - begin) / len(inputs)
        total += weight * float(executor.get(outputs["loss"]).reshape(()))
        executor.backward(0, micro, {"loss": weight})
    return total


@contextmanager
def pipeline(
    whole: Network,
    member: Communicator,
    schedule: PipelineSchedule,
    micro_batches: int,
    make: FromPieces = in_numpy.from_pieces,
    recompute: bool = False,
    **options: Any,
) -> Iterator[PipelineExecutor]:
    """This member's stage of the network."""
    parts = cut(whole, member.size * schedule.chunks)
    executor = make(parts[member.rank :: member.size], recompute=recompute)
    made = PipelineExecutor(executor, member, schedule, micro_batches, ENDS, LOSS, **options)
    try:
        yield made
    finally:
        made.close()


def trained(
    executor: PipelineExecutor, batches: Sequence[tuple[Array, Array]], rate: float = 0.1, seed: int = 5
) -> Result:
    """What these passes leave on this stage."""
    executor.draw_from(seed, 0)
    losses = []
    for inputs, labels in batches:
        losses.append(executor.inference_and_backprop(inputs, labels))
        gradients = named(executor, executor.gradients)
        executor.parameters[...] -= rate * executor.gradients
    return Result(losses, gradients, named(executor, executor.parameters), executor.named_state())


def trained_in(
    members: list[Communicator],
    whole: Network,
    schedule: PipelineSchedule,
    micro_batches: int,
    batches: Sequence[tuple[Array, Array]] = BATCHES,
    **options: Any,
) -> list[Result]:
    """What these passes leave on the stages of all members."""

    def own(member: Communicator) -> Result:
        with pipeline(whole, member, schedule, micro_batches, **options) as executor:
            return trained(executor, batches)

    return on_all(members, own)


def check_equal(found: Sequence[Result], expected: Result, tolerance: float) -> None:
    """The stages together hold what the one piece does: all of it, each value close to it."""
    for kind in ("gradients", "parameters", "state"):
        wanted = getattr(expected, kind)
        assert set().union(*(getattr(each, kind) for each in found)) == set(wanted)
        for each in found:
            for name, value in getattr(each, kind).items():
                np.testing.assert_allclose(value, wanted[name], rtol=tolerance, atol=tolerance, err_msg=name)
    for each in found:
        assert each.losses == found[0].losses
        np.testing.assert_allclose(each.losses, expected.losses, rtol=tolerance)


def _node(made: Network, kind: str, name: str, *inputs: str, **attributes: Any) -> str:
    made.add_node(Node(kind, inputs, (f"{name}.out",), attributes, name))
    return f"{name}.out"


def _normalized(made: Network, block: int, tensor: str, dtype: str) -> str:
    ones, zeros = np.ones(WIDTH, dtype), np.zeros(WIDTH, dtype)
    scale, shift = made.add_parameter(f"scale{block}", ones), made.add_parameter(f"shift{block}", zeros)
    mean, variance = made.add_state(f"mean{block}", zeros), made.add_state(f"variance{block}", ones)
    name = f"norm{block}"
    made.add_node(
        Node(
            "BatchNormalization",
            (tensor, scale, shift, mean, variance),
            (f"{name}.out", f"{name}.mean", f"{name}.variance"),
            {"training_mode": 1, "momentum": 0.9},
            name,
        )
    )
    return f"{name}.out"
