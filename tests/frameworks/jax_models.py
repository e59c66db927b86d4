"""Models of JAX's libraries that compute what one of PyTorch does, and their tensors by PyTorch's names"""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import linen, nnx
from torch import nn

Array = np.ndarray[Any, Any]
CLASSES = 10


def peer(dropout: float = 0.0) -> nn.Module:
    """A convolution, a BatchNorm and a linear layer, of images (batch, 1, 8, 8)."""
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1),
        nn.BatchNorm2d(3, momentum=0.1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(192, CLASSES),
    )


class Nnx(nnx.Module):  # type: ignore[misc]
    """The peer in Flax NNX, which has channels last."""

    def __init__(self, dropout: float = 0.0, *, rngs: nnx.Rngs) -> None:
        self.conv = nnx.Conv(1, 3, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(3, momentum=0.9, epsilon=1e-5, rngs=rngs)
        self.drop = nnx.Dropout(dropout, rngs=rngs)
        self.head = nnx.Linear(192, CLASSES, rngs=rngs)

    def __call__(self, images: Any) -> Any:
        """Scores (batch, 10) of images (batch, 1, 8, 8)."""
        found = nnx.relu(self.norm(self.conv(images.transpose(0, 2, 3, 1))))
        return self.head(self.drop(found.transpose(0, 3, 1, 2).reshape(len(images), -1)))


class Linen(linen.Module):  # type: ignore[misc]
    """The peer in Flax Linen, which is told whether it trains."""

    dropout: float = 0.0

    @linen.compact  # type: ignore[untyped-decorator]
    def __call__(self, images: Any, *, train: bool) -> Any:
        """Scores (batch, 10) of images (batch, 1, 8, 8)."""
        found = linen.Conv(3, (3, 3), name="conv")(images.transpose(0, 2, 3, 1))
        norm = linen.BatchNorm(use_running_average=not train, momentum=0.9, epsilon=1e-5, name="norm")
        found = linen.relu(norm(found)).transpose(0, 3, 1, 2).reshape(len(images), -1)
        found = linen.Dropout(self.dropout, deterministic=not train)(found)
        return linen.Dense(CLASSES, name="head")(found)


class Equinox(eqx.Module):  # type: ignore[misc]
    """The peer in Equinox, of one image (1, 8, 8)."""

    conv: eqx.nn.Conv2d
    norm: eqx.nn.BatchNorm
    drop: eqx.nn.Dropout
    head: eqx.nn.Linear

    def __init__(self, dropout: float = 0.0, *, key: Any) -> None:
        first, last = jax.random.split(key)
        self.conv = eqx.nn.Conv2d(1, 3, 3, padding=1, key=first)
        self.norm = eqx.nn.BatchNorm(3, axis_name="images", momentum=0.9, mode="batch")
        self.drop = eqx.nn.Dropout(dropout)
        self.head = eqx.nn.Linear(192, CLASSES, key=last)

    def __call__(self, image: Any, state: Any, *, key: Any) -> Any:
        """Scores (10,), and the state of the BatchNorm."""
        found, state = self.norm(self.conv(image), state)
        return self.head(self.drop(jax.nn.relu(found).reshape(-1), key=key)), state


def functions(dropout: float = 0.0) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The peer as a pair of functions, which keep the statistics in a state."""

    def init(key: Any, images: Any) -> Any:
        first, last = jax.random.split(key)
        made = {
            "conv": {"w": 0.3 * jax.random.normal(first, (3, 1, 3, 3)), "b": jnp.zeros(3)},
            "norm": {"w": jnp.ones(3), "b": jnp.zeros(3)},
            "head": {"w": 0.1 * jax.random.normal(last, (CLASSES, images[0].size * 3)), "b": jnp.zeros(10)},
        }
        return made, {"norm": {"mean": jnp.zeros(3), "var": jnp.ones(3)}}

    def apply(parameters: Any, images: Any, *, state: Any, train: bool, key: Any) -> Any:
        conv, norm, head = (parameters[name] for name in ("conv", "norm", "head"))
        found = jax.lax.conv(images, conv["w"], (1, 1), "SAME") + conv["b"][:, None, None]
        mean, var = state["norm"]["mean"], state["norm"]["var"]
        if train:
            own, spread = found.mean((0, 2, 3)), found.var((0, 2, 3))
            state = {"norm": {"mean": 0.9 * mean + 0.1 * own, "var": 0.9 * var + 0.1 * spread}}
            mean, var = own, spread
        found = (found - mean[:, None, None]) / jnp.sqrt(var[:, None, None] + 1e-5)
        found = jax.nn.relu(found * norm["w"][:, None, None] + norm["b"][:, None, None])
        found = found.reshape(len(images), -1)
        if train and dropout:
            kept = jax.random.bernoulli(key, 1 - dropout, found.shape)
            found = jnp.where(kept, found / (1 - dropout), 0)
        return found @ head["w"].T + head["b"], state

    return init, apply


MODELS: Mapping[str, Any] = {"nnx": Nnx, "linen": Linen, "equinox": Equinox, "functions": functions}
# PyTorch's name -> of each library's, and its axes by PyTorch's order.
KERNEL, MATRIX = (3, 2, 0, 1), (1, 0)
NAMES: Mapping[str, Mapping[str, tuple[str, tuple[int, ...] | None]]] = {
    "nnx": {
        "0.weight": ("conv.kernel", KERNEL), "0.bias": ("conv.bias", None),
        "1.weight": ("norm.scale", None), "1.bias": ("norm.bias", None),
        "5.weight": ("head.kernel", MATRIX), "5.bias": ("head.bias", None),
        "1.running_mean": ("norm.mean", None), "1.running_var": ("norm.var", None),
    },
    "linen": {
        "0.weight": ("params.conv.kernel", KERNEL), "0.bias": ("params.conv.bias", None),
        "1.weight": ("params.norm.scale", None), "1.bias": ("params.norm.bias", None),
        "5.weight": ("params.head.kernel", MATRIX), "5.bias": ("params.head.bias", None),
        "1.running_mean": ("batch_stats.norm.mean", None), "1.running_var": ("batch_stats.norm.var", None),
    },
    "equinox": {
        "0.weight": ("conv.weight", None), "0.bias": ("conv.bias", None),
        "1.weight": ("norm.weight", None), "1.bias": ("norm.bias", None),
        "5.weight": ("head.weight", None), "5.bias": ("head.bias", None),
    },
    "functions": {
        "0.weight": ("conv.w", None), "0.bias": ("conv.b", None),
        "1.weight": ("norm.w", None), "1.bias": ("norm.b", None),
        "5.weight": ("head.w", None), "5.bias": ("head.b", None),
        "1.running_mean": ("norm.mean", None), "1.running_var": ("norm.var", None),
    },
}  # fmt: skip


def by_peer(library: str, tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Tensors of a library's model by PyTorch's names, in PyTorch's shapes."""
    found = {}
    for name, (own, axes) in NAMES[library].items():
        if own in tensors:
            value = tensors[own] if axes is None else tensors[own].transpose(axes)
            found[name] = value.reshape(dict(peer().state_dict())[name].shape)
    return found


def peer_with(library: str, tensors: Mapping[str, Array]) -> nn.Module:
    """The peer in float64 with the tensors of a library's model."""
    module = peer().double()
    own = {name: torch.from_numpy(np.array(value)) for name, value in by_peer(library, tensors).items()}
    module.load_state_dict(own, strict=False)
    return module
