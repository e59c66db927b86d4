"""A network and its parts side by side: what the split ones give, joined, beside what the whole one gives"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from d5ray.distributed.communicators.communicator import Communicator
from d5ray.kits.parallel.splitting.layouts import WHOLE
from d5ray.kits.parallel.splitting.splitting import Plan, Splitting
from d5ray.networks.network import Network
from d5ray.operators.collectives import Collectives
from tests.distributed.forming import on_all
from tests.frameworks.small_networks import executor

Array = np.ndarray[Any, Any]
Values = dict[str, Array]
Given = Mapping[str, Array]
BOUNDS = {"float32": 1e-5, "float64": 1e-10}  # relative to the largest entry


@dataclass(frozen=True)
class Pass:
    """What a training pass leaves, and the scores of an evaluation after it."""

    outputs: Values
    gradients: Values
    state: Values
    evaluated: Values
    operations: tuple[int, int] = (0, 0)  # of the communicator: in training, in evaluation
    bytes_sent: int = 0  # in training


def run(framework: str, network: Network, given: Given, **options: Any) -> Pass:
    """One training pass, and one evaluation without what only the loss reads."""
    made = executor(framework, network, seed=11, **options)
    traffic = options["collectives"].communicator.traffic if "collectives" in options else None
    counts = [(0, 0)] if traffic is None else [(traffic.operations, traffic.bytes_sent)]

    def count() -> None:
        counts.append((0, 0) if traffic is None else (traffic.operations, traffic.bytes_sent))

    outputs = made.inference_and_backprop(given)
    count()
    slopes = dict(network.gradient())
    gradients = dict(zip(slopes, network.fetch_tensors(slopes.values()), strict=True))
    state = made.state
    evaluated = made.inference({name: value for name, value in given.items() if name != "labels"})
    count()
    operations = counts[1][0] - counts[0][0], counts[2][0] - counts[1][0]
    return Pass(outputs, gradients, state, evaluated, operations, counts[1][1] - counts[0][1])


def run_parts(framework: str, splitting: Splitting, given: Given, members: list[Communicator]) -> list[Pass]:
    """The same on all parts at once, by index."""

    def one(member: Communicator) -> Pass:
        part = splitting.part(member.rank)
        return run(framework, part, given, collectives=Collectives(member))

    return on_all(members, one, seconds=240)


def check(found: list[Pass], expected: Pass, splitting: Splitting, bound: float) -> None:
    """Outputs of every part, and gradients and state of all, are those of the whole network.

    What is not divided has the same gradient on all parts, bit by bit.
    """
    for part in found:
        for mine, whole in ((part.outputs, expected.outputs), (part.evaluated, expected.evaluated)):
            assert mine.keys() == whole.keys()
            close(mine, whole, bound)
    for mine_of, whole in (
        ([part.gradients for part in found], expected.gradients),
        ([part.state for part in found], expected.state),
    ):
        assert all(mine.keys() == whole.keys() for mine in mine_of)
        close(splitting.joined(mine_of), whole, bound)
    same = [name for name, held in splitting.parameters.items() if held is WHOLE]
    for part in found[1:]:
        for name in same:
            np.testing.assert_array_equal(part.gradients[name], found[0].gradients[name])


def close(found: Given, expected: Given, bound: float) -> None:
    """Relative to the largest entry of each."""
    for name, value in expected.items():
        assert found[name].shape == value.shape and found[name].dtype == value.dtype, name
        largest = max(1e-12, float(np.abs(value).max(initial=0)))
        error = float(np.abs(found[name] - value).max(initial=0)) / largest
        assert error <= bound, f"{name}: {error:.1e}"


Form = Callable[[str, int], list[Communicator]]


def check_split(
    form: Form, framework: str, network: Network, plan: Plan, parts: int, given: Given, bound: float
) -> tuple[Splitting, list[Pass]]:
    """A network split by a plan computes what it computes whole."""
    splitting = Splitting(network, plan, parts)
    expected = run(framework, network.copy(), given)
    found = run_parts(framework, splitting, given, form("shared_memory", parts))
    check(found, expected, splitting, bound)
    return splitting, found
