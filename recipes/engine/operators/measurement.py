"""A measurement of operators as data: which problems, under what, how long, in how many processes"""

import importlib.util
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from d5ray.checks import check_count, check_number
from d5ray.errors import ConfigurationError, nearest
from d5ray.operators.framework import FRAMEWORKS, PACKAGES
from d5ray.operators.tensors.tensor_descriptor import element_type
from d5ray.ops.deepbench import problems as deepbench
from d5ray.ops.problem import Problem

SUITES: Final = {"deepbench": deepbench.problems}
DEVICES: Final = {"cpu": ("numpy", "torch", "tensorflow"), "cuda": ("torch", "tensorflow", "cupy")}
LONGEST_SECONDS: Final = 30 * 86400.0
MOST_PROCESSES, MOST_THREADS = 1000, 4096
UNITS: Final = {"": 1.0, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}
_DRIVER = (Path("/proc/driver/nvidia/gpus"), Path("/dev/nvidia0"))


def usable_cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0))


@final
@dataclass(frozen=True, kw_only=True)
class OperatorBench:
    """Wrong values raise `ConfigurationError`, which for a missing framework says what to install.

    groups          of problems: "gemm", "conv", "rnn"
    frameworks      in the order in which they take turns
    budget_seconds  for the processes and what they measure, from when Ray is up
    processes       fresh ones of each framework, one after the other; an interval needs 6
    threads         of an operator on a CPU
    """

    suite: str = "deepbench"
    mode: str = "training"
    groups: tuple[str, ...] = deepbench.GROUPS
    frameworks: tuple[str, ...] = ("torch", "numpy")
    device: str = "cpu"
    dtype: str = "float32"
    budget_seconds: float = 60.0
    processes: int = 6
    threads: int = field(default_factory=usable_cores)
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, known in (
            ("suite", self.suite, SUITES),
            ("mode", self.mode, deepbench.MODES),
        ):
            if value not in known:
                raise ConfigurationError(f"there is no {name} {value!r}: {nearest(value, known)}")
        if self.device not in DEVICES:
            raise ConfigurationError(f"there is no device {self.device!r}: known: {', '.join(DEVICES)}")
        _check_names("problems", self.groups, deepbench.GROUPS)
        _check_names("frameworks", self.frameworks, FRAMEWORKS)
        check_number("budget", self.budget_seconds, low=0.0, low_included=False)
        check_count("processes", self.processes, 1, MOST_PROCESSES)
        check_count("threads", self.threads, 1, MOST_THREADS)
        check_count("seed", self.seed, 0)
        dtype = element_type(self.dtype)
        if dtype.kind != "f" and dtype.name != "bfloat16":
            raise ConfigurationError(
                f"dtype is {self.dtype!r}: it must be a floating-point type, such as 'float32'"
            )
        for name in self.frameworks:
            self._check_there(name)

    def _check_there(self, framework: str) -> None:
        if framework not in DEVICES[self.device]:
            raise ConfigurationError(
                f"{framework} does not compute on {self.device}: take {', '.join(DEVICES[self.device])}"
            )
        if importlib.util.find_spec(framework) is None:
            raise ConfigurationError(
                f"{framework} is not installed: {PACKAGES[framework]}, or leave it out of --frameworks"
            )
        if self.device == "cuda" and not any(path.exists() for path in _DRIVER):
            raise ConfigurationError("this machine has no NVIDIA GPU: take --device cpu")

    def problems(self) -> tuple[Problem, ...]:
        """The problems of the suite that are asked for."""
        return SUITES[self.suite](self.mode, self.groups, self.dtype)

    @property
    def fixed(self) -> dict[str, Any]:
        """The settings that runs to be compared must have in common, as JSON data."""
        names = ("suite", "mode", "device", "dtype")
        return {name: getattr(self, name) for name in names}

    @property
    def mutable(self) -> dict[str, Any]:
        """The settings that runs to be compared need not have in common, as JSON data."""
        return {
            "groups": list(self.groups),
            "frameworks": list(self.frameworks),
            "budget_seconds": self.budget_seconds,
            "processes": self.processes,
            "threads": self.threads,
            "seed": self.seed,
        }

    def describe(self) -> dict[str, Any]:
        """The job as JSON data, with the sizes of every problem."""
        return {**self.fixed, **self.mutable, "problems": {each.name: told(each) for each in self.problems()}}


def told(problem: Problem) -> dict[str, Any]:
    """A problem as JSON data: what readers of a run's tables need to know of it."""
    return {
        "group": problem.group,
        "type": problem.node.type,
        "pass": problem.of,
        "inputs": [None if each is None else list(each.sizes) for each in problem.inputs],
        "output": list(problem.output.sizes),
        "batch": problem.batch,
        "sample": list(problem.sample),
        "flops": problem.flops,
        "bytes": problem.moved_bytes,
    }


def seconds_of(text: str) -> float:
    """A duration in words: '60s', '2m', '1.5h', or a number of seconds.

    >>> seconds_of("60s"), seconds_of("1.5m"), seconds_of("90")
    (60.0, 90.0, 90.0)
    """
    number = text.strip().rstrip("abcdefghijklmnopqrstuvwxyz").strip()
    unit = text.strip()[len(number) :].strip()
    try:
        seconds = float(number) * UNITS[unit]
    except (ValueError, KeyError):
        seconds = 0.0
    if not 0 < seconds <= LONGEST_SECONDS:
        what = "longer than 30 days" if seconds > 0 else "no duration"
        raise ConfigurationError(f"--budget {text!r} is {what}: give one such as 60s, 5m or 1h")
    return seconds


def _check_names(what: str, found: Iterable[str], known: Iterable[str]) -> None:
    """Raise `ConfigurationError` unless these are known names, none of them twice."""
    names = list(found)
    if not names or len(set(names)) < len(names):
        raise ConfigurationError(
            f"{what} are {names}: name one or several, none twice, of {', '.join(known)}"
        )
    for name in names:
        if name not in known:
            raise ConfigurationError(f"there are no {what} {name!r}: {nearest(name, known)}")
