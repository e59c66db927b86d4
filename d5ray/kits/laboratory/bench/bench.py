"""Bench: what is measured, by whom in turn, how long, in how many fresh processes, as data"""

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from d5ray.checks import check_count, check_number
from d5ray.errors import ConfigurationError, nearest
from d5ray.kits.laboratory.metrics.operator_calls import OPERATOR_TIME
from d5ray.metrics.exports.exported_metrics import EXECUTOR
from d5ray.operators.framework import FRAMEWORKS, PACKAGES
from d5ray.operators.tensors.tensor_descriptor import element_type
from d5ray.ops.counting.measurable import Measurable
from d5ray.recipes.engine.parsing.options import usable_cores

if TYPE_CHECKING:
    from d5ray.actors.metrics.exporter import MetricsExporter

DEVICES: Final = {
    "cpu": ("numpy", "torch", "tensorflow", "jax"), "cuda": ("torch", "tensorflow", "cupy", "jax"),
}  # fmt: skip
MOST_PROCESSES, MOST_THREADS = 1000, 4096
CPUS: Final = 0.125  # of an executor, as Ray counts them: they take turns
_DRIVER = (Path("/proc/driver/nvidia/gpus"), Path("/dev/nvidia0"))

Team = Sequence[Any]  # actors that do one problem together; mostly one


@dataclass(frozen=True, kw_only=True)
class Bench(ABC):
    """Problems, and contenders that take turns at them in fresh processes of their own.

    frameworks      the contenders, in the order in which they take turns: frameworks, or what stands for them
    budget_seconds  for the processes and what they measure, from when Ray is up
    processes       fresh ones of each contender, one after the other; an interval needs 6
    threads         of each process for what it computes on a CPU
    """

    recipe: ClassVar[str]  # what its runs are called
    metric: ClassVar[str] = OPERATOR_TIME
    has_peaks: ClassVar[bool] = True  # whether shares of the machine's peaks make sense
    is_sampled: ClassVar[bool] = False  # whether what the budget does not reach may be left out

    frameworks: tuple[str, ...] = ("torch", "numpy")
    device: str = "cpu"
    dtype: str = "float32"
    budget_seconds: float = 60.0
    processes: int = 6
    threads: int = field(default_factory=usable_cores)
    seed: int = 0

    def __post_init__(self) -> None:
        """Wrong values raise `ConfigurationError`, which for a missing framework says what to install."""
        if self.device not in DEVICES:
            raise ConfigurationError(f"there is no device {self.device!r}: known: {', '.join(DEVICES)}")
        check_number("budget", self.budget_seconds, low=0.0, low_included=False)
        check_count("processes", self.processes, 1, MOST_PROCESSES)
        check_count("threads", self.threads, 1, MOST_THREADS)
        check_count("seed", self.seed, 0)
        dtype = element_type(self.dtype)
        if dtype.kind != "f" and dtype.name != "bfloat16":
            raise ConfigurationError(
                f"dtype is {self.dtype!r}: it must be a floating-point type, such as 'float32'"
            )
        self.check()

    @abstractmethod
    def check(self) -> None:
        """Raise `ConfigurationError` where a value of this kind of bench is wrong."""

    @abstractmethod
    def problems(self) -> Sequence[Measurable]:
        """The problems, each with a name of its own."""

    def does(self, contender: str, problem: str) -> bool:
        """True if this contender is to do this problem."""
        return True

    @property
    def sent(self) -> Any:
        """All that is sent to the processes, in which the user's own code may be."""
        return self.problems()

    @property
    def cpus(self) -> int:
        """The processors that Ray must have at least."""
        return 1

    @property
    @abstractmethod
    def title(self) -> str:
        """The bench in words, as progress and pictures have it."""

    @property
    @abstractmethod
    def fixed(self) -> dict[str, Any]:
        """The settings that runs to be compared must have in common, as JSON data."""

    @property
    def mutable(self) -> dict[str, Any]:
        """The settings that runs to be compared may have of their own, as JSON data: how much is measured."""
        names = ("budget_seconds", "processes", "threads", "seed")
        return {"frameworks": list(self.frameworks), **{name: getattr(self, name) for name in names}}

    def executors(self, run: str, number: int) -> tuple[type, list[tuple[Any, ...]]]:
        """The class of the actors of a round, and the arguments of the one of each contender."""
        raise NotImplementedError

    @contextmanager
    def teams(self, run: str, number: int) -> Iterator[Mapping[str, Team]]:
        """The fresh processes of a round, by contender, one each; they end with the context.

        number: of the round.
        """
        from d5ray.actors.remote import spawned  # noqa: PLC0415 - imports Ray

        kind, arguments = self.executors(run, number)
        with spawned(kind, arguments, cpus=CPUS) as actors:
            yield {name: [actor] for name, actor in zip(self.frameworks, actors, strict=True)}

    def describe(self) -> dict[str, Any]:
        """The job as JSON data, with the sizes of every problem."""
        known = {
            each.name: {**each.describe(), "number": number} for number, each in enumerate(self.problems())
        }
        common = {"title": self.title, "metric": self.metric, "frameworks": list(self.frameworks)}
        return {**self.fixed, **self.mutable, **common, "problems": known}

    def exporter(self, run: str, contender: str) -> "MetricsExporter":
        """The exporter of a contender to Ray's metrics."""
        from d5ray.actors.metrics.exporter import MetricsExporter  # noqa: PLC0415 - takes long to import

        return MetricsExporter(run, self.title, EXECUTOR, contender)


@dataclass(frozen=True, kw_only=True)
class FrameworkBench(Bench, ABC):
    """A bench whose contenders are frameworks, each in a process of its own."""

    def check(self) -> None:
        check_names("frameworks", self.frameworks, FRAMEWORKS)
        for name in self.frameworks:
            _check_there(name, self.device)

    def executors(self, run: str, number: int) -> tuple[type, list[tuple[Any, ...]]]:
        from d5ray.actors.executors.operator_executor import OperatorExecutor  # noqa: PLC0415 - imports Ray

        seed = self.seed + number
        return OperatorExecutor, [
            (name, self.device, self.threads, run, number, rank, seed, self.exporter(run, name))
            for rank, name in enumerate(self.frameworks)
        ]


def check_names(what: str, found: Iterable[str], known: Iterable[str]) -> None:
    """Raise `ConfigurationError` unless these are known names, none of them twice."""
    names = list(found)
    if not names or len(set(names)) < len(names):
        raise ConfigurationError(
            f"{what} are {names}: name one or several, none twice, of {', '.join(known)}"
        )
    for name in names:
        if name not in known:
            raise ConfigurationError(f"there are no {what} {name!r}: {nearest(name, known)}")


def check_numbers(option: str, values: Sequence[int], least: int, most: int, *, needed: bool = True) -> None:
    """Raise `ConfigurationError` unless these are numbers within the bounds, none of them twice."""
    if len(set(values)) < len(values) or (needed and not values):
        raise ConfigurationError(f"{option} is {values}: give one number or several, none twice")
    for value in values:
        check_count(option, value, least, most)


def _check_there(framework: str, device: str) -> None:
    if framework not in DEVICES[device]:
        raise ConfigurationError(
            f"{framework} does not compute on {device}: take {', '.join(DEVICES[device])}"
        )
    if importlib.util.find_spec(framework) is None:
        raise ConfigurationError(
            f"{framework} is not installed: {PACKAGES[framework]}, or leave it out of --frameworks"
        )
    if device == "cuda" and not any(path.exists() for path in _DRIVER):
        raise ConfigurationError("this machine has no NVIDIA GPU: take --device cpu")
