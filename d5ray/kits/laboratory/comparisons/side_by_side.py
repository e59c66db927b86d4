"""The job of every comparison: contenders that do the same work, how often each is measured, and when"""

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

from d5ray.checks import check_count
from d5ray.errors import ConfigurationError, nearest
from d5ray.identity.canonical import canonical
from d5ray.kits.laboratory.comparisons.contenders import AnyContender, Contender
from d5ray.metrics.definitions.catalogue import CATALOGUE
from d5ray.metrics.judge.criteria import Criterion
from d5ray.metrics.statistics.sequential_stopping import SequentialStopping
from d5ray.recipes.engine.parsing.measured import contenders_in

if TYPE_CHECKING:
    from d5ray.actors.group.run_row import RunOrigin
    from d5ray.actors.session.session import Session
    from d5ray.recipes.engine.recipe import Recipe, Result

RUN = "d5ray.kits.laboratory.comparisons.rounds:run"  # which knows this class, and imports Ray
Comparison = tuple[AnyContender, ...]
Kind = TypeVar("Kind", bound=AnyContender)


@dataclass(frozen=True, kw_only=True)
class SideBySide(ABC):
    """A recipe's job: contenders that are measured in turn. Wrong values raise `ConfigurationError`.

    comparisons   tuples of contenders that are compared with each other, and so stand next to each other
    pairs         how often all of them are started afresh, an interval needs 6; or `SequentialStopping()`,
                  which stops when all ratios are precise
    """

    comparisons: tuple[Comparison, ...]
    pairs: int | SequentialStopping = 10
    seed: int = 0
    name: str = "side_by_side"

    def __post_init__(self) -> None:
        if not isinstance(self.pairs, SequentialStopping):
            check_count("pairs", self.pairs, 1)
        check_count("seed", self.seed, 0)
        try:
            contenders = self.contenders()
        except TypeError:
            contenders = []
        if not contenders or not all(isinstance(contender, Contender) for contender in contenders):
            raise ConfigurationError(
                f"comparisons is {self.comparisons!r}: it must be tuples of contenders, such as "
                "((Agents(2), DataParallel(2)),)"
            )
        names = [contender.name for contender in contenders]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigurationError(
                f"comparisons names {', '.join(twice)} twice: a contender is measured once a round; put all "
                "that it is compared with into one tuple"
            )
        self.check()

    @abstractmethod
    def check(self) -> None:
        """Raise `ConfigurationError` where a value of this kind of job is wrong."""

    def run(self, recipe: "Recipe", origin: "RunOrigin", address: str | None, quiet: bool) -> "Result":
        """Measure everything that is compared, in turn, and judge the results."""
        result: Result = pkgutil.resolve_name(RUN)(self, recipe, origin, address, quiet)
        return result

    @property
    def cpus(self) -> int:
        """The cores of Ray that the contenders use, one for each process; 0 where they use no Ray."""
        return max(contender.processes for contender in self.contenders())

    def connect(self, address: str | None, metadata: dict[str, str]) -> "Session":
        """The Ray that the contenders use; one that is asked for and not used raises `ConfigurationError`."""
        from d5ray.actors.session import session  # noqa: PLC0415 - imports Ray

        if self.cpus:
            # others print much
            return session.connect(address, cpus=self.cpus, metadata=metadata, quiet=True)
        if address is not None:
            raise ConfigurationError(
                f"--address {address}: this recipe measures processes of this machine, outside Ray: leave it "
                "out"
            )
        return session.Session(address="", dashboard=None, embedded=False, seconds=0.0)

    @property
    def most_pairs(self) -> int:
        """The largest number of rounds."""
        return self.pairs.pairs[-1] if isinstance(self.pairs, SequentialStopping) else self.pairs

    def contenders(self) -> list[AnyContender]:
        """All of them, in the order of their comparisons."""
        return [contender for compared in self.comparisons for contender in compared]

    def contenders_of(self, kind: type[Kind], wanted: str) -> Iterator[Kind]:
        """All of them. Raises `ConfigurationError` at one of another kind; wanted: "it must be …"."""
        for contender in self.contenders():
            if not isinstance(contender, kind):
                raise ConfigurationError(f"comparisons has {contender!r}: it must be {wanted}")
            yield contender

    def interleaved(self) -> Iterator[tuple[int, AnyContender]]:
        """The contenders in the order of measuring, each with its round: forwards, then backwards (ABBA)."""
        for pair in range(self.most_pairs):
            for compared in self.comparisons:
                for contender in compared if pair % 2 == 0 else reversed(compared):
                    yield pair, contender

    def describe(self) -> dict[str, Any]:
        """The job as JSON data."""
        return {f.name: canonical(getattr(self, f.name)) for f in fields(self)}

    def check_criterion(self, criterion: Criterion) -> None:
        """Raise `ConfigurationError` for a criterion that no row of this job could decide."""
        metric, names = criterion.metric, [contender.name for contender in self.contenders()]
        if CATALOGUE.get(metric.name) is type(metric):
            raise ConfigurationError(
                f"METRICS has {metric.label}, which does not say which contender it is about, but the recipe "
                f"measures several side by side, {', '.join(names)}: take a metric that names one, such as "
                "StepTimeOf(contender)"
            )
        for wanted in contenders_in(metric).values():
            if not any(
                name == wanted or name.startswith((f"{wanted}, ", f"{wanted}[", f"{wanted} "))
                for name in names
            ):
                raise ConfigurationError(
                    f"METRICS has {metric.label}, but no contender is called {wanted!r}: "
                    f"{nearest(wanted, names)}"
                )

    def datasets(self) -> dict[str, tuple[str, Mapping[str, Any]]]:
        """The data sets that are trained on, as name and options, by what tells several of them apart."""
        name = getattr(self, "dataset", None)
        return {"": (name, getattr(self, "dataset_kwargs", {}))} if isinstance(name, str) else {}
