"""What a process does that times operators: d5ray's call beside the framework's own, at the same arrays"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from benchmarks.interleaved_timing import interleaved, timer
from benchmarks.operator_overhead.baselines import native
from d5ray.errors import AgentError
from d5ray.metrics.definitions.operator_calls import NATIVE, OURS
from d5ray.operators.framework import Framework, class_named
from d5ray.operators.validation.error_norms import error_norms
from d5ray.ops.problem import Problem
from d5ray.recipes.engine.comparisons.timing import Times

Found = dict[tuple[str, str], Times]  # by problem and side


@final
@dataclass(frozen=True)
class OperatorTimes:
    """The work of the one process: every problem for about `seconds`, both sides in turn.

    Both must give the same outputs before anything counts; otherwise `AgentError`.
    """

    framework: str
    problems: tuple[Problem, ...]
    threads: int
    seconds: float
    seed: int

    def __call__(self, rank: int) -> Found:
        framework = class_named(self.framework).on("cpu")
        framework.use_threads(self.threads)
        found: Found = {}
        for problem in self.problems:
            timers = {side: timer(call) for side, call in self.calls(framework, problem).items()}
            for side, times in interleaved(timers, self.seconds).items():
                found[problem.name, side] = times
        return found

    def calls(self, framework: Framework, problem: Problem) -> dict[str, Callable[[], object]]:
        """The call of each side, on arrays that both share."""
        rng = np.random.default_rng(self.seed)
        inputs = [
            framework.array(rng.standard_normal(each.sizes).astype(each.dtype))
            for each in problem.inputs
            if each is not None
        ]
        functions = {OURS: framework.built(problem.context), NATIVE: native(self.framework, problem)}
        outputs = {side: self._output(framework, function, inputs) for side, function in functions.items()}
        norms = error_norms(problem.name, outputs[OURS], outputs[NATIVE])
        if not norms.passed:
            raise AgentError(f"d5ray and {self.framework} disagree, and nothing is measured: {norms}")
        return {side: framework.inference(function, inputs) for side, function in functions.items()}

    def _output(self, framework: Framework, function: Any, inputs: list[Any]) -> np.ndarray[Any, Any]:
        return framework.numbers(function(*inputs))
