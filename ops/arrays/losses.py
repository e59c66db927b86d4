"""Losses: SoftmaxCrossEntropyLoss, NegativeLogLikelihoodLoss and MeanSquaredError"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from d5ray.errors import ConfigurationError, DataError
from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.wide import WideOperator, gradient_of, kept, optional, outputs_and_kept


@final
class SoftmaxCrossEntropyLoss(WideOperator):
    """l[n, …] = −w[label] · log softmax(scores)[n, label, …], reduced to their weighted mean, or sum, or not.

    scores (batch, classes, ...), labels (batch, ...), weights (classes,). The second output is log softmax.
    The weights get no gradient, as in PyTorch.
    """

    needs = 2

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        logarithms = _log_softmax(xp, inputs[0])
        loss = _Labels.of(xp, context, inputs).loss(xp, logarithms)
        return outputs_and_kept(context, (loss, logarithms), logarithms)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (logarithms,) = kept(context, outputs)
        of_logarithms = xp.zeros_like(logarithms)
        if gradients[0] is not None:
            of_logarithms += _Labels.of(xp, context, inputs).gradient(xp, gradients[0], logarithms)
        if (more := gradient_of(gradients, 1)) is not None:
            of_logarithms += more
        total = of_logarithms.sum(axis=1, keepdims=True)
        return (of_logarithms - xp.exp(logarithms) * total, None, None)[: len(inputs)]


@final
class NegativeLogLikelihoodLoss(WideOperator):
    """l[n, …] = −w[label] · x[n, label, …], reduced to their weighted mean, their sum, or not at all.

    x (batch, classes, ...), logarithms of probabilities; target (batch, ...), weight (classes,).
    """

    needs = 2

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        return (_Labels.of(xp, context, inputs).loss(xp, inputs[0]),)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        return (_Labels.of(xp, context, inputs).gradient(xp, gradients[0], inputs[0]), None, None)[
            : len(inputs)
        ]


@final
class MeanSquaredError(WideOperator):
    """L = mean((y − target)²) over all elements (domain "d5ray"); both of one shape."""

    needs = 2

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        y, target = inputs
        assert y is not None and target is not None
        if y.shape != target.shape:
            raise ConfigurationError(
                f"{context.node} has y of {y.shape} and a target of {target.shape}: both need one shape"
            )
        return (xp.asarray(xp.square(y - target).mean(), dtype=y.dtype),)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        y, target = inputs
        assert y is not None
        of_y = (y - target) * (gradients[0] * (2 / max(1, y.size)))
        return of_y, -of_y


@final
@dataclass(frozen=True)
class _Labels:
    """The element of every column of classes that counts, and its weight.

    labels (batch, 1, ...), in 0..classes−1 even where they are ignored; weights of its shape, 0 where a label
    is ignored.
    """

    labels: Array
    weights: Array
    reduction: str

    @staticmethod
    def of(xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> "_Labels":
        x, labels, weights = inputs[0], inputs[1], optional(inputs, 2)
        assert x is not None and labels is not None
        if x.ndim < 2 or (x.shape[0], *x.shape[2:]) != labels.shape:
            raise ConfigurationError(
                f"{context.node} has scores of {x.shape} for labels of {labels.shape}: it needs "
                "(batch, classes, ...) and (batch, ...)"
            )
        ignored, classes = context.attribute("ignore_index"), x.shape[1]
        counted = xp.ones(labels.shape, dtype=bool) if ignored is None else labels != ignored
        if bool(((labels < 0) | (labels >= classes))[counted].any()):
            raise DataError(
                f"{context.node} has labels from {labels.min()} to {labels.max()} for {classes} classes: "
                f"they must lie in 0..{classes - 1}"
            )
        own = xp.where(counted, labels, 0).astype(xp.int64)
        each = xp.ones(labels.shape, dtype=x.dtype) if weights is None else weights[own]
        reduction = context.attribute("reduction", "mean")
        if reduction not in ("mean", "sum", "none"):
            raise ConfigurationError(
                f"{context.node} has the reduction {reduction!r}: it must be mean, sum or none"
            )
        return _Labels(xp.expand_dims(own, 1), xp.expand_dims(each * counted, 1), reduction)

    def loss(self, xp: Any, logarithms: Array) -> Array:
        own = -xp.take_along_axis(logarithms, self.labels, axis=1) * self.weights
        own = own.astype(logarithms.dtype, copy=False)[:, 0]
        if self.reduction == "none":
            return own
        return xp.asarray(own.sum() / self._divisor(), dtype=logarithms.dtype)

    def gradient(self, xp: Any, gradient: Array, logarithms: Array) -> Array:
        """The gradient with respect to the logarithms."""
        share = -self.weights / self._divisor()
        share = share * (xp.expand_dims(gradient, 1) if self.reduction == "none" else gradient)
        classes = xp.arange(logarithms.shape[1]).reshape(-1, *(1,) * (logarithms.ndim - 2))
        return xp.where(classes == self.labels, share, 0).astype(logarithms.dtype, copy=False)

    def _divisor(self) -> Array | int:
        return self.weights.sum() if self.reduction == "mean" else 1


def _log_softmax(xp: Any, scores: Array) -> Array:
    shifted = scores - scores.max(axis=1, keepdims=True)
    return shifted - xp.log(xp.exp(shifted).sum(axis=1, keepdims=True))


OPERATORS: Mapping[str, ArrayOperator] = {
    "MeanSquaredError": MeanSquaredError(),
    "NegativeLogLikelihoodLoss": NegativeLogLikelihoodLoss(),
    "SoftmaxCrossEntropyLoss": SoftmaxCrossEntropyLoss(),
}
