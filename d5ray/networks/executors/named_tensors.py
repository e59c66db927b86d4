"""Check that tensors by name are those of a model"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from d5ray.errors import ConfigurationError

MOST_NAMED: Final = 5


def check_tensors(
    model: str, own: Mapping[str, Any], tensors: Mapping[str, Any], missing: Collection[str] | None = None
) -> None:
    """Raise `ConfigurationError` for tensors that are another model's.

    own, tensors: what have shapes, by name. missing: those without a value; None: all of own that are not
    among the tensors.
    """
    absent = [name for name in own if name not in tensors] if missing is None else list(missing)
    wrong = {
        "lacks": [name for name in tensors if name not in own],
        "has no value for": absent,
        "has": [
            f"{name} {tuple(value.shape)} where it is {tuple(own[name].shape)}"
            for name, value in tensors.items()
            if name in own and tuple(own[name].shape) != tuple(value.shape)
        ],
    }
    if said := "; ".join(
        f"it {what} {', '.join(names[:MOST_NAMED])}" for what, names in wrong.items() if names
    ):
        raise ConfigurationError(
            f"the tensors are not those of the model, {model}: {said}: give the experiment that trained them"
        )
