"""Passes of a model, compiled: equal models in one process share them"""

import weakref
from collections.abc import Hashable, Mapping
from typing import Any, Final, final

import jax
import jax.numpy as jnp

from d5ray.errors import ConfigurationError
from d5ray.frameworks.jax.losses import loss_of, right_ones, scores_of
from d5ray.frameworks.jax.model import JaxModel, Tensors
from d5ray.operators.loss import Loss

HALVES: Final = {"bfloat16": jnp.bfloat16}
GENERATOR: Final = "threefry2x32"


@final
class Passes:
    """Pure functions of tensors and a batch, traced once for every shape of a batch.

    trained, state: the tensors by name, of which a training pass gives gradients, and those afterwards.
    """

    def __init__(self, model: JaxModel, loss: Loss, precision: str) -> None:
        self._model, self._loss, self._half = model, loss, HALVES.get(precision)
        self.train = jax.jit(self._train)
        self.judge = jax.jit(self._judge)
        self.infer = jax.jit(self._infer)

    def _train(
        self, trained: Tensors, state: Tensors, seed: Any, count: Any, inputs: Any, labels: Any
    ) -> tuple[Any, Any, Any, Any]:
        """The loss, the batch's weight, the gradients, and the state afterwards; seed (2,), count: of what is
        drawn."""
        key = jax.random.fold_in(jax.random.wrap_key_data(seed, impl=GENERATOR), count)

        def compared(parameters: Tensors) -> Any:
            output, after = self._output(
                self._narrow(parameters), state, self._narrow(inputs), labels, key, training=True
            )
            loss, weight = loss_of(self._loss, self._broad(output), labels)
            return loss, (weight, after)

        (loss, (weight, after)), gradients = jax.value_and_grad(compared, has_aux=True)(trained)
        return loss, weight, gradients, {name: _alike(name, own, after[name]) for name, own in state.items()}

    def _judge(self, trained: Tensors, state: Tensors, inputs: Any, labels: Any) -> tuple[Any, Any, Any]:
        """The mean loss, how many labels have the largest score, and the weight."""
        output, _ = self._output(trained, state, inputs, labels, _no_key(), training=False)
        right = right_ones(scores_of(output), labels, self._loss) if self._loss.classifies else 0
        loss, weight = loss_of(self._loss, output, labels)
        return loss, right, weight

    def _infer(self, trained: Tensors, state: Tensors, inputs: Any) -> Any:
        """The scores."""
        return scores_of(self._model.call({**trained, **state}, inputs, _no_key(), training=False)[0])

    def _output(
        self, trained: Tensors, state: Tensors, inputs: Any, labels: Any, key: Any, *, training: bool
    ) -> tuple[Any, Mapping[str, Any]]:
        more = {"labels": labels} if self._loss.takes_labels else {}
        return self._model.call({**trained, **state}, inputs, key, training=training, **more)

    def _narrow(self, tree: Any) -> Any:
        """Floating-point numbers in the precision of training passes."""
        return tree if self._half is None else _of_type(tree, self._half)

    def _broad(self, tree: Any) -> Any:
        return tree if self._half is None else _of_type(tree, jnp.float32)


_shared: "weakref.WeakValueDictionary[Hashable, Passes]" = weakref.WeakValueDictionary()


def passes_of(model: JaxModel, loss: Loss, precision: str) -> Passes:
    """The passes of such a model; those that another executor has, where the models are equal."""
    key = model, loss, precision
    try:
        found = _shared.get(key)
    except TypeError:  # the model holds something that cannot be compared
        return Passes(model, loss, precision)
    if found is None:
        found = _shared[key] = Passes(model, loss, precision)
    return found


def _of_type(tree: Any, kind: Any) -> Any:
    def converted(leaf: Any) -> Any:
        floating = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jnp.floating)
        return leaf.astype(kind) if floating else leaf

    return jax.tree.map(converted, tree)


def _alike(name: str, before: Any, after: Any) -> Any:
    """The state of this name after a pass, in its type."""
    if jnp.shape(after) != before.shape:
        raise ConfigurationError(
            f"the model has replaced its state {name!r} {tuple(before.shape)} by {jnp.shape(after)}: agents "
            "exchange a model's state, so let it keep one shape"
        )
    return jnp.asarray(after).astype(before.dtype)


def _no_key() -> Any:
    """A key for what draws nothing."""
    return jax.random.key(0, impl=GENERATOR)
