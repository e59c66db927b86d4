"""AllreduceBench: sums over the agents of real groups, by several backends, at DeepBench's sizes"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, final

from d5ray.distributed.communicators.backends import BACKENDS
from d5ray.kits.laboratory.bench.bench import Bench, Team, check_names, check_numbers
from d5ray.kits.laboratory.metrics.exchanges import ALLREDUCE_TIME
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.counting.measurable import described
from d5ray.ops.problem import FORWARD

# Elements of float32: github.com/baidu-research/DeepBench, code/kernels/all_reduce_problems.h (Apache 2.0).
DEEPBENCH: Final = (100_000, 3_097_600, 4_194_304, 6_553_600, 16_777_217, 38_360_000, 64_500_000)
FOR_AGENTS: Final = tuple(BACKENDS)
MOST_ELEMENTS, MOST_AGENTS = 1 << 34, 1024
JOIN_SECONDS: Final = 120.0


@final
@dataclass(frozen=True)
class AllreduceProblem:
    """The sum of one array of float32 over all agents of a group. agents: of the largest group."""

    elements: int
    agents: int

    metric: ClassVar[str] = ALLREDUCE_TIME
    level: ClassVar[int] = 3
    batch: ClassVar[int] = 1
    flops: ClassVar[int] = 0  # an addition for each element and agent is not what takes the time
    input_bytes: ClassVar[int] = 0

    @property
    def name(self) -> str:
        """The number of elements, as DeepBench lists it."""
        return f"{self.elements} floats"

    @property
    def group(self) -> str:
        """The size: what groups are compared at."""
        return self.name

    @property
    def moved_bytes(self) -> int:
        """The bytes of the array: over the time of a sum, NCCL's "algorithm bandwidth"."""
        return 4 * self.elements

    @property
    def needed_bytes(self) -> int:
        """The memory of all agents: the array, and as much again for what they exchange."""
        return 2 * self.agents * self.moved_bytes

    def describe(self) -> dict[str, Any]:
        """The description of it for readers of a run's tables, as JSON data."""
        array = TensorDescriptor("float32", (self.elements,))
        return described(self, "allreduce", (array,), FORWARD, array.sizes, array.sizes)


@final
@dataclass(frozen=True, kw_only=True)
class AllreduceBench(Bench):
    """Groups of agents that sum arrays; see `Bench` for the other values.

    backends  communicators, such as "shared_memory" and "socket"
    agents    of a group; of several sizes several groups
    sizes     of the arrays, in elements of float32
    """

    recipe: ClassVar[str] = "bench_allreduce"
    metric: ClassVar[str] = ALLREDUCE_TIME
    has_peaks: ClassVar[bool] = False

    backends: tuple[str, ...] = ("shared_memory", "socket")
    agents: tuple[int, ...] = (2,)
    sizes: tuple[int, ...] = DEEPBENCH
    frameworks: tuple[str, ...] = field(init=False, default=())
    threads: int = field(init=False, default=1)

    def check(self) -> None:
        check_names("backends", self.backends, FOR_AGENTS)
        check_numbers("--agents", self.agents, 2, MOST_AGENTS)
        check_numbers("--sizes", self.sizes, 1, MOST_ELEMENTS)
        groups = {f"{backend}[{agents}]": None for agents in self.agents for backend in self.backends}
        object.__setattr__(self, "frameworks", tuple(groups))

    @property
    def cpus(self) -> int:
        return max(self.agents)

    def problems(self) -> Sequence[AllreduceProblem]:
        return tuple(AllreduceProblem(each, max(self.agents)) for each in self.sizes)

    @contextmanager
    def teams(self, run: str, number: int) -> Iterator[Mapping[str, Team]]:
        from d5ray.actors.calls import get  # noqa: PLC0415 - imports Ray
        from d5ray.actors.cluster.placement import place_of  # noqa: PLC0415
        from d5ray.actors.group.coordinator import Coordinator  # noqa: PLC0415
        from d5ray.actors.remote import SETUP_SECONDS, spawned  # noqa: PLC0415
        from d5ray.kits.laboratory.bench.group_member import GroupMember  # noqa: PLC0415

        made: dict[str, Team] = {}
        with ExitStack() as stack:
            for contender in self.frameworks:
                backend, _, count = contender.removesuffix("]").partition("[")
                arguments = [
                    (contender, rank, run, number, self.exporter(run, f"{contender} {rank}"))
                    for rank in range(int(count))
                ]
                # All groups together take as much of a node as one would by itself: they take turns.
                actors = stack.enter_context(spawned(GroupMember, arguments, cpus=1.0 / len(self.frameworks)))
                places = get(
                    [actor.__ray_call__.remote(place_of) for actor in actors], SETUP_SECONDS, "start"
                )
                coordinator = Coordinator(f"{run} {contender}", JOIN_SECONDS, place_of(None))
                stack.callback(coordinator.close)
                joining = [
                    actor.meet.remote(group, backend)
                    for actor, group in zip(actors, coordinator.issue(places), strict=True)
                ]
                get(joining, SETUP_SECONDS, f"join the group {contender}")
                made[contender] = actors
            yield made

    @property
    def title(self) -> str:
        return f"bench allreduce over {', '.join(self.frameworks)}"

    @property
    def fixed(self) -> dict[str, Any]:
        return {
            "sizes": list(self.sizes),
            "agents": list(self.agents),
            "device": self.device,
            "dtype": "float32",
        }

    @property
    def mutable(self) -> dict[str, Any]:
        return {"backends": list(self.backends), **super().mutable}
