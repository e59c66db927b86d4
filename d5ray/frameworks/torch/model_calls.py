"""A call of a module with what a batch has for it, and what of its output the scores are"""

from collections.abc import Callable
from typing import Any

import torch

from d5ray.errors import ConfigurationError
from d5ray.networks.executors.evaluation import classes_in
from d5ray.networks.executors.model_calls import called as called
from d5ray.networks.executors.model_calls import checked_weight, no_number, scores_in, sum_and_weight
from d5ray.operators.loss import Loss


def scores_of(output: Any) -> torch.Tensor:
    """The scores in a model's output; see `scores_in`."""
    found: torch.Tensor = scores_in(output, torch.is_tensor)
    return found


def output_and_loss(
    module: Callable[..., Any], loss: Loss, inputs: Any, labels: torch.Tensor
) -> tuple[Any, torch.Tensor, float | None]:
    """The output of a module for a batch; its mean loss; and the weight of the batch, where it has one.

    Raises `ConfigurationError` for a loss that is something else than one number, or a sum and a weight.
    """
    output = called(module, inputs, labels=labels) if loss.takes_labels else called(module, inputs)
    found = loss.torch(output if loss.sees_output else scores_of(output), labels)
    return output, *mean_and_weight(loss, found, labels)


def mean_and_weight(loss: Loss, found: Any, labels: torch.Tensor) -> tuple[torch.Tensor, float | None]:
    """The mean loss of a batch, and its weight, if it has one, by what the loss has given for it."""
    weight = None
    if loss.weighted is None:
        found, weight = sum_and_weight(found)
    if not isinstance(found, torch.Tensor) or found.numel() != 1:
        raise no_number(loss, found)
    found = found.reshape(())
    if loss.weighted:
        assert loss.ignored is not None
        return found, float(labels.ne(loss.ignored).sum().item())
    if weight is None:
        return found, None
    weight = checked_weight(loss, weight, found.detach())
    return (found / weight if weight else found), weight


def check_differentiable(found: torch.Tensor, loss: Loss) -> None:
    """Raise `ConfigurationError` for a loss that no parameter's gradient follows from."""
    if not found.requires_grad:
        raise ConfigurationError(
            f"{loss!r} gave {found.item():g}, which cannot be differentiated: leave detach(), item(), NumPy "
            "and no_grad() out of the model's forward pass and of the loss, and let a parameter that they "
            "use require gradients"
        )


def right_ones(scores: torch.Tensor, labels: torch.Tensor, loss: Loss) -> int:
    """The number of labels that have the largest score, of those that count."""
    labels = classes_in(loss, labels)
    right = scores.argmax(dim=loss.classes_axis) == labels
    if loss.ignored is not None:
        right &= labels != loss.ignored
    return int(right.sum().item())
