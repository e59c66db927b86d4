"""A module of Flax NNX as a function of its tensors"""

import functools
from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp
from flax import nnx

from d5ray.frameworks.jax.model import JaxModel, OpenedModel, Tensors, mode_of
from d5ray.frameworks.jax.tree_layout import TreeLayout, path_name
from d5ray.networks.executors.model_calls import called


@final
@dataclass(frozen=True)
class NnxModel(JaxModel):
    """`nnx.Param`s are trained; every other variable is state, but for keys of random numbers.

    In training the module is called as it was made, each pass with keys of its own in its streams;
    evaluations call it after `eval()`.
    """

    graph: Any  # nnx.GraphDef
    trained: TreeLayout
    random: TreeLayout
    state: TreeLayout

    def call(
        self, tensors: Tensors, inputs: Any, key: jax.Array, *, training: bool, **more: Any
    ) -> tuple[Any, dict[str, Any]]:
        module = self._module(tensors, self._streams(key))
        if not training:
            module.eval()
        output = called(module, inputs, **mode_of(type(module).__call__, key, training=training), **more)
        found = {  # without what it has only kept for somebody to look at
            _name(path): value for path, value in jax.tree_util.tree_leaves_with_path(nnx.state(module))
        }
        return output, {name: found[name] for name in self.state.names}

    def filled(self, tensors: Tensors) -> Any:
        module = self._module(tensors, self._streams(jax.random.key(0)))
        module.eval()
        return module

    def _module(self, tensors: Tensors, streams: Tensors) -> Any:
        return nnx.merge(
            self.graph, self.trained.tree(tensors), self.random.tree(streams), self.state.tree(tensors)
        )

    def _streams(self, key: jax.Array) -> dict[str, Any]:
        """Keys and counters of the module's random numbers, as a pass begins."""
        names = self.random.names
        return {
            name: jax.random.fold_in(key, place) if name.endswith("key") else jnp.zeros((), jnp.uint32)
            for place, name in enumerate(names)
        }


def opened(module: nnx.Module) -> OpenedModel:
    """The module apart from its values, which are copies."""
    graph, *parts = nnx.split(module, nnx.Param, nnx.RngState, ...)
    layout = functools.partial(TreeLayout.of, name=_name)
    (trained, values), (random, _), (state, others) = map(layout, parts)
    return OpenedModel(NnxModel(graph, trained, random, state), values, others)


def _name(path: Any) -> str:
    """The path of a variable, without the attribute in which it holds its array."""
    held = isinstance(path[-1], jax.tree_util.GetAttrKey) and len(path) > 1
    return path_name(path[:-1] if held else path)
