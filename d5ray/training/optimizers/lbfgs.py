"""L-BFGS: Newton's direction from the last few changes of the gradient"""

from dataclasses import dataclass
from typing import Any, final

from d5ray.training.arrays import add_scaled, copy_of, dot
from d5ray.training.optimizers.optimizer import STEPS, Count, Optimizer, Rate, State

CURVATURE = 1e-10  # sᵀy that a pair must have


@final
@dataclass(frozen=True)
class LBFGS(Optimizer):
    """x ← x − η H g, H from the last pairs s = Δx, y = Δg by the two-loop recursion.

    (Liu and Nocedal, doi 10.1007/BF01589116.) One gradient a step and no line search, as PyTorch's with
    max_iter=1; the first step is at most η long in the 1-norm. For gradients of all samples, or of large
    batches: y is noise where two gradients are of different samples.
    """

    whole = True
    learning_rate: Rate = 1.0
    history: Count = 10

    def state(self, x: Any) -> State:
        return {STEPS: 0, "pairs": [], "scale": 1.0, "x": copy_of(x), "gradient": copy_of(x)}

    def update(self, x: Any, gradient: Any, state: State) -> None:
        rate = self.learning_rate
        if state[STEPS] == 1:
            rate *= min(1.0, 1.0 / max(1e-300, float(abs(gradient).sum())))
        else:
            self._remember(x - state["x"], gradient - state["gradient"], state)
        state["x"][...] = x
        state["gradient"][...] = gradient
        add_scaled(x, -rate, _newton(gradient, state))

    def _remember(self, s: Any, y: Any, state: State) -> None:
        """Keep a pair, if the loss is convex along it."""
        curvature = dot(s, y)
        if curvature > CURVATURE:
            state["pairs"] = [*state["pairs"], (s, y, 1 / curvature)][-self.history :]
            state["scale"] = curvature / dot(y, y)


def _newton(gradient: Any, state: State) -> Any:
    """H g."""
    q, remembered = copy_of(gradient), []
    for s, y, rho in reversed(state["pairs"]):
        a = rho * dot(s, q)
        add_scaled(q, -a, y)
        remembered.append((s, y, rho, a))
    q *= state["scale"]
    for s, y, rho, a in reversed(remembered):
        add_scaled(q, a - rho * dot(y, q), s)
    return q
