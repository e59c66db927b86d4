"""TreeLayout: where the arrays of a pytree stand, and what they are called"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self, final

import jax
import jax.numpy as jnp
import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.frameworks.jax.model import Tensors

ARRAY: Final = "array"
Leaf = tuple[str, Any]  # ARRAY and its name, or "" and a value that is no array


@final
@dataclass(frozen=True)
class TreeLayout:
    """The structure of a pytree, and for each leaf its name, or its value where it is no array."""

    structure: Any
    leaves: tuple[Leaf, ...]

    @classmethod
    def of(cls, tree: Any, name: Callable[[Any], str] | None = None) -> tuple[Self, Tensors]:
        """The layout of a tree, and its arrays; names are paths such as "layers.0.weight"."""
        found, structure = jax.tree_util.tree_flatten_with_path(tree)
        called = name or path_name
        leaves: list[Leaf] = []
        arrays: dict[str, Any] = {}
        for path, value in found:
            if not isinstance(value, (jax.Array, np.ndarray)):
                leaves.append(("", value))
                continue
            own = called(path)
            if own in arrays:
                raise ConfigurationError(
                    f"the model has two arrays called {own!r}: name its parts without dots, so that every "
                    "tensor has a name of its own"
                )
            arrays[own] = value
            leaves.append((ARRAY, own))
        return cls(structure, tuple(leaves)), arrays

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arrays."""
        return tuple(value for kind, value in self.leaves if kind)

    def tree(self, tensors: Tensors) -> Any:
        """The tree with these arrays."""
        return jax.tree.unflatten(
            self.structure, [tensors[value] if kind else value for kind, value in self.leaves]
        )

    def arrays(self, tree: Any) -> dict[str, Any]:
        """The arrays of a tree of this structure, by name.

        Raises `ConfigurationError` for another structure.
        """
        structure = jax.tree.structure(tree)
        if structure != self.structure:
            raise ConfigurationError(
                f"the model's state has become {structure}, and was {self.structure}: agents exchange a "
                "model's state, so let it keep its form"
            )
        found = jax.tree.leaves(tree)
        return {value: leaf for (kind, value), leaf in zip(self.leaves, found, strict=True) if kind}


def path_name(path: Any) -> str:
    """The name of a leaf by the path to it, such as "layers.0.weight"."""
    return str(jax.tree_util.keystr(path, simple=True, separator="."))


def is_trained(array: Any) -> bool:
    """True for an array of floating-point numbers. Raises `ConfigurationError` for complex ones."""
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise ConfigurationError(
            f"the model has an array {tuple(array.shape)} of {array.dtype}, but agents exchange real "
            "numbers: hold its real and its imaginary part"
        )
    return bool(jnp.issubdtype(array.dtype, jnp.floating))
