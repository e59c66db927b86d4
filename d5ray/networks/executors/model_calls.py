"""A call of a model with what a batch has for it, and what of its output the scores are"""

from collections.abc import Callable, Mapping
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
    """The scores in a model's output: the array itself, its `logits`, or the first array of several.

    is_array: says what is one under the framework. Raises `ConfigurationError` where there is none.
    """
    if is_array(output):
        return output
    found = output.get(LOGITS) if isinstance(output, Mapping) else getattr(output, LOGITS, None)
    if found is None and isinstance(output, (Mapping, tuple, list)):
        parts = output.values() if isinstance(output, Mapping) else output
        found = next((each for each in parts if is_array(each)), None)
    if not is_array(found):
        raise ConfigurationError(
            f"the model returned a {type(output).__name__}, the loss needs one tensor of scores: return "
            f"a tensor, a tuple that begins with one, or a dictionary with {LOGITS!r}"
        )
    return found


def no_number(loss: object, found: Any) -> ConfigurationError:
    """The error for a loss that is something else than one number; found: what it gave."""
    shown = f"a tensor {tuple(found.shape)}" if hasattr(found, "shape") else repr(found)
    return ConfigurationError(
        f"{loss!r} gave {shown}, and a loss is one number that can be differentiated: take the mean over the "
        "batch"
    )
