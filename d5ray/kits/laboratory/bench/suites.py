"""Suites: operators at published sizes, for `d5ray bench operators`"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, final

from d5ray.errors import ConfigurationError, nearest
from d5ray.kits.laboratory.bench import deepbench
from d5ray.kits.laboratory.bench.bench import FrameworkBench, check_names
from d5ray.ops.problem import Problem

SUITES: Final = {"deepbench": deepbench.problems}


@final
@dataclass(frozen=True, kw_only=True)
class OperatorBench(FrameworkBench):
    """The operators of a suite; see `Bench` for the other values.

    groups  of problems: "gemm", "conv", "rnn"
    """

    recipe: ClassVar[str] = "bench_operators"
    is_sampled: ClassVar[bool] = True

    suite: str = "deepbench"
    mode: str = "training"
    groups: tuple[str, ...] = deepbench.GROUPS

    def check(self) -> None:
        for name, value, known in (
            ("suite", self.suite, SUITES),
            ("mode", self.mode, deepbench.MODES),
        ):
            if value not in known:
                raise ConfigurationError(f"there is no {name} {value!r}: {nearest(value, known)}")
        check_names("problems", self.groups, deepbench.GROUPS)
        super().check()

    def problems(self) -> Sequence[Problem]:
        return SUITES[self.suite](self.mode, self.groups, self.dtype)

    def does(self, contender: str, problem: str) -> bool:
        return True

    @property
    def title(self) -> str:
        return f"bench {self.suite} {self.mode}"

    @property
    def fixed(self) -> dict[str, Any]:
        names = ("suite", "mode", "device", "dtype")
        return {name: getattr(self, name) for name in names}

    @property
    def mutable(self) -> dict[str, Any]:
        return {"groups": list(self.groups), **self.amounts()}
