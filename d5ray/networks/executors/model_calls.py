"""A call of a model with what a batch has for it, and what of its output the scores are"""

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from d5ray.errors import ConfigurationError

LOGITS: Final = "logits"  # what Hugging Face's models call their scores


def called(model: Callable[..., Any], inputs: Any, **more: Any) -> Any:
    """The output of a model for its inputs: one array, several by position, or several by name."""
    if isinstance(inputs, Mapping):
        return model(**inputs, **more)
    if isinstance(inputs, (tuple, list)):
        return model(*inputs, **more)
    return model(inputs, **more)


def scores_in(output: Any, is_array: Callable[[Any], bool]) -> Any:
    """The scores in a model's output: the array itself, its `logits`, or the first array that is in it.

    is_array: says what is one under the framework. Raises `ConfigurationError` where there is none.
    """
    found = _first(output, is_array)
    if found is None:
        raise ConfigurationError(
            f"the model returned a {type(output).__name__}, the loss needs one tensor of scores: return "
            f"a tensor, a tuple that begins with one, or a dictionary with {LOGITS!r}"
        )
    return found


def _first(output: Any, is_array: Callable[[Any], bool]) -> Any:
    """The scores in an output that is nested to any depth; None where there are none."""
    if is_array(output):
        return output
    parts = output
    if is_dataclass(output) and not isinstance(output, (Mapping, type)):
        parts = {each.name: getattr(output, each.name) for each in fields(output)}
    logits = parts.get(LOGITS) if isinstance(parts, Mapping) else getattr(output, LOGITS, None)
    if logits is not None or not isinstance(parts, (Mapping, tuple, list)):
        return logits if is_array(logits) else None
    inner = (_first(each, is_array) for each in (parts.values() if isinstance(parts, Mapping) else parts))
    return next((each for each in inner if each is not None), None)


def sum_and_weight(found: Any) -> tuple[Any, Any]:
    """The sum and the weight that a loss has given, or the mean that it has given and None."""
    if isinstance(found, (tuple, list)) and len(found) == 2:
        return found[0], found[1]
    return found, None


def checked_weight(loss: object, weight: Any, total: Any) -> float:
    """The weight that a loss has given with a sum, a number; `ConfigurationError` for what is none.

    What a weight is differentiated by would not be that of all agents, so that it must not ask for gradients.
    """
    differentiated = getattr(weight, "requires_grad", False)
    try:
        found = math.nan if differentiated else float(weight)
    except (TypeError, ValueError, RuntimeError):
        found = math.nan
    if not 0 <= found < math.inf:
        shown = "a tensor that requires gradients" if differentiated else repr(weight)
        raise ConfigurationError(
            f"{loss!r} gave a sum and {shown} for its weight: give (sum, weight), of which the weight is a "
            "number of at least 0, such as how many labels count"
        )
    if not found and abs(float(total)) > 0:  # not a number is no finite loss, which ends a training
        raise ConfigurationError(
            f"{loss!r} gave the sum {float(total):g} with a weight of 0: what counts for nothing adds nothing"
        )
    return found


def no_number(loss: object, found: Any) -> ConfigurationError:
    """The error for a loss that is something else than one number; found: what it gave."""
    shown = f"a tensor {tuple(found.shape)}" if hasattr(found, "shape") else repr(found)
    return ConfigurationError(
        f"{loss!r} gave {shown}, and a loss is one number that can be differentiated: take the mean over the "
        "batch, or give (sum, weight)"
    )
