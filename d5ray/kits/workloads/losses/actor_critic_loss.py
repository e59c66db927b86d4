"""ActorCriticLoss: what a policy and a value are trained by, from actions and what came of them"""

from typing import TYPE_CHECKING, Any, final

import numpy as np

from d5ray.checks import check_number
from d5ray.errors import ConfigurationError
from d5ray.operators.loss import Loss

if TYPE_CHECKING:
    import torch


@final
class ActorCriticLoss(Loss):
    """L = mean of  −A log π(a)  +  v (R − V)² / 2  −  e H(π)      (A3C: Mnih et al., arXiv:1602.01783).

    Scores (batch, actions + 1): a policy's logits, π = softmax of them, and V, the value of the state.
    Targets (batch, 3) float32: the action a that was taken, its advantage A, and the return R. H is the
    policy's entropy; `value` is v and `entropy` e.
    """

    classifies = weighted = False

    def __init__(self, value: float = 0.5, entropy: float = 0.01) -> None:
        check_number("value", value, low=0.0, low_included=True)
        check_number("entropy", entropy, low=0.0, low_included=True)
        self.value = value
        self.entropy = entropy

    def check(self, output_shape: tuple[int, ...], classes: int) -> None:
        if len(output_shape) != 2 or output_shape[1] != classes + 1:
            raise ConfigurationError(
                f"the model's output has the shape {tuple(output_shape[1:])} a sample, but {self!r} over "
                f"{classes} actions needs ({classes + 1},): a score for every action, and the state's value"
            )

    def torch(self, scores: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
        logs = scores[:, :-1].log_softmax(dim=1)  # (batch, actions)
        action, advantage, worth = labels.unbind(dim=1)
        taken = logs.gather(1, action.long()[:, None])[:, 0]
        error = worth - scores[:, -1]
        spread = -(logs.exp() * logs).sum(dim=1)
        return (-advantage * taken + self.value / 2 * error**2 - self.entropy * spread).mean()

    def numpy(self, scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> float:
        logs, taken = _logs(scores), labels[:, 0].astype(np.int64)
        spread = -(np.exp(logs) * logs).sum(axis=1)
        error = labels[:, 2] - scores[:, -1]
        policy = -labels[:, 1] * logs[np.arange(len(logs)), taken]
        return float((policy + self.value / 2 * error**2 - self.entropy * spread).mean())

    def numpy_gradient(
        self, scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        logs, taken = _logs(scores), labels[:, 0].astype(np.int64)
        policy = np.exp(logs)  # (batch, actions)
        gradient = np.empty_like(scores)
        of_taken = policy - np.eye(logs.shape[1])[taken]
        spread = -(policy * logs).sum(axis=1, keepdims=True)
        gradient[:, :-1] = labels[:, 1:2] * of_taken + self.entropy * policy * (logs + spread)
        gradient[:, -1] = -self.value * (labels[:, 2] - scores[:, -1])
        gradient /= len(scores)
        return gradient


def _logs(scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """log π (batch, actions)."""
    logits = scores[:, :-1]
    shifted = logits - logits.max(axis=1, keepdims=True)
    logs: np.ndarray[Any, Any] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return logs
