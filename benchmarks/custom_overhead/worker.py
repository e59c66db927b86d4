"""What a process does that times a custom operator: d5ray's call beside PyTorch's own of the same function"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch

import d5ray as d5
from benchmarks.custom_overhead.passes import BOTH, FORWARD
from benchmarks.interleaved_timing import interleaved, timer
from d5ray.errors import AgentError
from d5ray.frameworks import torch as d5fw
from d5ray.metrics.definitions.operator_calls import NATIVE, OURS
from d5ray.recipes.engine.comparisons.timing import Times

POWER = 3
TOLERANCE = 1e-5
CODE = """
template <typename T>
class cube : public deep500::CustomOperator {
    int64_t length;

public:
    cube(int64_t length) : length(length) {}

    void forward(const T *input, T *output) {
        for (int64_t i = 0; i < length; ++i) output[i] = input[i] * input[i] * input[i];
    }

    void backward(const T *grad, const T *input, const T *output, T *input_grad) {
        for (int64_t i = 0; i < length; ++i) input_grad[i] = 3 * grad[i] * input[i] * input[i];
    }
};
"""


@final
class Cube(d5.CustomPythonOp):
    """x³"""

    def forward(self, x: Any) -> Any:
        return x**POWER

    def backward(self, grads: Any, fwd_inputs: Any, fwd_outputs: Any) -> Any:
        return grads[0] * POWER * fwd_inputs[0] ** (POWER - 1)


@final
@dataclass(frozen=True)
class CustomTimes:
    """The work of the one process: both passes for about `seconds` each, both sides in turn.

    Both must give the same outputs and gradients before anything counts; otherwise `AgentError`.
    """

    language: str
    elements: int
    threads: int
    seconds: float
    seed: int

    def __call__(self, rank: int) -> dict[tuple[str, str], Times]:
        torch.set_num_threads(self.threads)
        x = torch.rand(self.elements, generator=torch.Generator().manual_seed(self.seed), requires_grad=True)
        sides: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
            OURS: d5fw.custom_op(self.operator()),
            NATIVE: lambda given: given**POWER,
        }
        found: dict[tuple[str, str], Times] = {}
        for what, passed in ((FORWARD, self.forward), (BOTH, self.both)):
            calls = {side: passed(function, x) for side, function in sides.items()}
            if not torch.allclose(calls[OURS](), calls[NATIVE](), rtol=TOLERANCE):
                raise AgentError(
                    f"the {self.language} operator and PyTorch's differ {what}: nothing is measured"
                )
            timers = {side: timer(call) for side, call in calls.items()}
            found |= {(what, side): times for side, times in interleaved(timers, self.seconds).items()}
        return found

    def operator(self) -> Any:
        if self.language == "Python":
            return Cube()
        tensor = d5.TensorDescriptor("float32", ("n",))
        return d5.compile_custom_cppop("cube", CODE, [tensor], [tensor], arguments=lambda x: x.shape)

    def forward(self, function: Any, x: torch.Tensor) -> Callable[[], torch.Tensor]:
        plain = x.detach()

        def call() -> torch.Tensor:
            with torch.inference_mode():
                found: torch.Tensor = function(plain)
                return found

        return call

    def both(self, function: Any, x: torch.Tensor) -> Callable[[], torch.Tensor]:
        gradient = torch.ones_like(x)
        return lambda: torch.autograd.grad(function(x), x, gradient)[0]
