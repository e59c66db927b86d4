"""A module of Flax Linen as a pair of functions: its collection `params` is trained, the others are state"""

import functools
from dataclasses import dataclass
from typing import Any, Final, final

import jax

from d5ray.frameworks.jax.model import mode_of
from d5ray.networks.executors.model_calls import called

PARAMETERS: Final = "params"
DRAWING: Final = ("dropout", "default")


def first_variables(module: Any, key: jax.Array, inputs: Any) -> tuple[Any, Any]:
    """The variables that are trained, and the others, by the names that Linen gives them."""
    keys = {PARAMETERS: key} | {name: jax.random.fold_in(key, 1) for name in DRAWING}
    mode = mode_of(type(module).__call__, key, training=False)
    made = dict(called(functools.partial(module.init, keys), inputs, **mode))
    return {PARAMETERS: made.pop(PARAMETERS, {})}, made


@final
@dataclass(frozen=True)
class LinenApply:
    """The module's `apply`; in training it draws with one key, and changes what is not trained."""

    module: Any

    def __call__(self, parameters: Any, inputs: Any, *, state: Any, key: jax.Array, train: bool) -> Any:
        mode = mode_of(type(self.module).__call__, key, training=train)
        apply = functools.partial(self.module.apply, {**parameters, **state})
        if not train:
            return called(apply, inputs, **mode), state
        keys = dict.fromkeys(DRAWING, key)
        output, after = called(apply, inputs, **mode, rngs=keys, mutable=list(state))
        return output, {name: after.get(name, own) for name, own in state.items()}
