"""A module of Equinox as a function of its tensors"""

from dataclasses import dataclass
from typing import Any, final

import equinox as eqx
import jax

from d5ray.errors import ConfigurationError
from d5ray.frameworks.jax.model import JaxModel, OpenedModel, Tensors, mode_of
from d5ray.frameworks.jax.tree_layout import TreeLayout, is_trained, path_name
from d5ray.networks.executors.model_calls import called

BATCH = "batch"


@final
@dataclass(frozen=True)
class EquinoxModel(JaxModel):
    """A module takes one sample, as Equinox has it; the batch is an axis of `jax.vmap`.

    Its arrays of floating-point numbers are trained; other arrays, and what `eqx.nn.State` holds, are state.
    axis: the name of the batch's axis, of which a BatchNorm speaks.
    """

    layout: TreeLayout
    state: TreeLayout | None
    axis: str
    kept: tuple[str, ...]  # the module's own arrays that are not trained

    def call(
        self, tensors: Tensors, inputs: Any, key: jax.Array, *, training: bool, **more: Any
    ) -> tuple[Any, dict[str, Any]]:
        if more:
            raise ConfigurationError(
                "loss is 'model', and an Equinox module takes one sample at a time, whose loss is none of a "
                "batch: give a loss, such as SoftmaxCrossEntropyLoss()"
            )
        module = self.layout.tree(tensors)
        if not training:
            module = eqx.nn.inference_mode(module)
        samples = len(jax.tree.leaves(inputs)[0])
        stated = () if self.state is None else (self.state.tree(tensors),)

        def one(sample: Any, own: jax.Array) -> Any:
            mode = mode_of(type(module).__call__, own, training=training)
            if not stated:
                return called(module, sample, **mode), None
            if isinstance(sample, dict):
                return module(**sample, state=stated[0], **mode)
            given = sample if isinstance(sample, tuple) else (sample,)
            return module(*given, *stated, **mode)

        mapped = jax.vmap(one, axis_name=self.axis, out_axes=(0, None))
        output, after = mapped(inputs, jax.random.split(key, samples))
        new = {name: tensors[name] for name in self.kept}
        return output, new if self.state is None else new | self.state.arrays(after)

    def filled(self, tensors: Tensors) -> Any:
        module = eqx.nn.inference_mode(self.layout.tree(tensors))
        return module if self.state is None else (module, self.state.tree(tensors))


def opened(module: Any, state: Any) -> OpenedModel:
    """The module and its `eqx.nn.State` apart from their values."""
    layout, arrays = TreeLayout.of(module)
    trained = {name: value for name, value in arrays.items() if is_trained(value)}
    kept = {name: value for name, value in arrays.items() if name not in trained}
    stated, values = _of_state(module, state)
    model = EquinoxModel(layout, stated, _axis(module), tuple(kept))
    return OpenedModel(model, trained, {**kept, **values})


def _of_state(module: Any, state: Any) -> tuple[TreeLayout | None, Tensors]:
    """The layout of a state, whose arrays are called by where the module has their index."""
    names = {
        id(leaf): ".".join(filter(None, (path_name(path), path_name(within))))
        for path, index in _indices(module)
        for within, leaf in jax.tree_util.tree_leaves_with_path(state.get(index))
    }
    if not names:
        return None, {}
    leaves, structure = jax.tree.flatten(state)
    called = [names[id(leaf)] for leaf in leaves]
    layout = TreeLayout(structure, tuple(("array", name) for name in called))
    return layout, dict(zip(called, leaves, strict=True))


def _indices(module: Any) -> list[tuple[Any, Any]]:
    """Every index into the state, with the path to it; the first one where several parts share it."""
    kind = eqx.nn.StateIndex
    found = jax.tree_util.tree_leaves_with_path(module, is_leaf=lambda part: isinstance(part, kind))
    first: dict[Any, tuple[Any, Any]] = {}
    for path, index in found:
        if isinstance(index, kind):
            first.setdefault(index.marker, (path, index))
    return list(first.values())


def _axis(module: Any) -> str:
    kind = eqx.nn.BatchNorm
    parts = jax.tree.leaves(module, is_leaf=lambda part: isinstance(part, kind))
    names = {name for part in parts if isinstance(part, kind) for name in _names(part.axis_name)}
    if len(names) > 1:
        raise ConfigurationError(
            f"the model's BatchNorms speak of the axes {', '.join(map(repr, sorted(names)))}, and a batch "
            "has one: give all the same axis_name"
        )
    return str(names.pop()) if names else BATCH


def _names(axis: Any) -> tuple[Any, ...]:
    return (axis,) if isinstance(axis, str) else tuple(axis)
