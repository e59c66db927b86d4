"""FunctionLoss: any function of a model's output and the labels, such as a loss of PyTorch's"""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, final

from d5ray.checks import check_kind, wrong_kind
from d5ray.errors import ConfigurationError
from d5ray.operators.loss import Loss

if TYPE_CHECKING:
    import torch

# PyTorch's losses of scores (batch, classes, ...) and the classes' numbers (batch, ...).
OF_CLASSES: Final = frozenset({
    "CrossEntropyLoss", "NLLLoss", "MultiMarginLoss", "cross_entropy", "nll_loss", "multi_margin_loss",
})  # fmt: skip


@final
class FunctionLoss(Loss):
    """FunctionLoss(torch.nn.CrossEntropyLoss(label_smoothing=0.1)): a function of PyTorch as a loss.

    function(output, labels) gives the loss, a tensor of one number that can be differentiated: the mean over
    the batch; or (sum, weight), see `Loss`. output: all that the model returns, a tensor, a tuple, a
    dictionary; labels: the data set's.
    classifies: whether labels are classes, so that evaluations count how often the largest score is the
    label's; by default where the function is a loss of PyTorch of which that is known. classes_axis: the axis
    of the classes in the scores; PyTorch's losses have them at 1. ignored: a label that counts for nothing,
    by default the function's own `ignore_index`.
    """

    sees_output = True

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        classifies: bool | None = None,
        classes_axis: int = 1,
        ignored: int | None = None,
    ) -> None:
        if not callable(function) or isinstance(function, type):
            raise wrong_kind(
                "function", function, "a function of output and labels such as CrossEntropyLoss()"
            )
        check_kind("classifies", classifies, bool | None, "True, False or None")
        self.function = function
        named, given = getattr(function, "func", function), getattr(function, "keywords", {})  # of a partial
        known = (getattr(named, "__name__", None) or type(named).__name__) in OF_CLASSES
        self.classifies = known if classifies is None else classifies
        self.classes_axis = classes_axis
        own = given.get("ignore_index", getattr(function, "ignore_index", -100 if known else None))
        self.ignored = own if ignored is None else ignored
        # PyTorch's losses do not tell their settings otherwise, which an experiment's hash must have.
        self.settings = (
            {
                name: value
                for name, value in vars(function).items()
                if not name.startswith("_")
                and isinstance(value, (bool, int, float, str))
                and name != "training"
            }
            if hasattr(function, "__dict__")
            else {}
        )

    @property
    def is_sum(self) -> bool:
        """True if it is known to be a sum over the batch, and no mean."""
        given = getattr(self.function, "keywords", {})
        return bool(given.get("reduction", getattr(self.function, "reduction", "mean")) == "sum")

    def __repr__(self) -> str:
        name = getattr(self.function, "__name__", None)
        return f"FunctionLoss({repr(self.function) if name is None else name})"

    def check(self, output_shape: tuple[int, ...], classes: int) -> None:
        axis = self.classes_axis
        if self.classifies and (len(output_shape) < 2 or output_shape[axis] != classes):
            shown = "(" + ", ".join(["batch", *map(str, output_shape[1:])]) + ")"
            raise ConfigurationError(
                f"the model's output has the shape {shown}, but {self!r} over {classes} classes needs "
                f"(batch, {classes}), or the classes at axis {axis}: let the model's last layer give "
                f"{classes} scores per label, or set classes_axis"
            )

    def torch(self, scores: Any, labels: "torch.Tensor") -> Any:
        return self.function(scores, labels)


@final
class LabelsFirst:
    """A loss of Keras's, which takes the labels first, as a function of output and labels."""

    def __init__(self, loss: Any) -> None:
        self.loss = loss
        self.ignore_index = getattr(loss, "ignore_class", None)
        self.settings = json.dumps(loss.get_config(), sort_keys=True, default=repr)

    def __call__(self, output: Any, labels: Any) -> Any:
        return self.loss(labels, output)

    def __repr__(self) -> str:
        return f"keras.losses.{type(self.loss).__name__}"


@final
class ModelLoss(Loss):
    """ModelLoss(), or loss="model": the loss that the model computes itself, given the labels.

    It is called with `labels=` beside its inputs, as Hugging Face's models are, and its output has the loss
    under `loss`, or first: a mean, or (sum, weight), see `Loss`. Evaluations know no accuracy then; a loss of
    scores, such as `SoftmaxCrossEntropyLoss()`, sees the output's `logits`.
    """

    classifies = False
    sees_output = takes_labels = True
    ignored = -100  # as Hugging Face's models have it

    def check(self, output_shape: tuple[int, ...], classes: int) -> None:
        pass

    def torch(self, scores: Any, labels: "torch.Tensor") -> Any:
        found: Any = getattr(scores, "loss", None)
        if found is None and isinstance(scores, dict):
            found = scores.get("loss")
        if found is None and isinstance(scores, tuple):
            found = scores[0]
        if found is None:
            raise ConfigurationError(
                f"the model gives a {type(scores).__name__} without a loss: let it take `labels` and give "
                "its loss under 'loss', or first of a tuple, or give the experiment a loss"
            )
        return found


def check_framework(loss: Loss, framework: str) -> None:
    """Raise `ConfigurationError` for a loss of Keras's where a model is trained under another framework."""
    of_keras = isinstance(loss, FunctionLoss) and isinstance(loss.function, LabelsFirst)
    if of_keras and framework not in ("tensorflow", ""):
        raise ConfigurationError(
            f"loss is {loss!r}, and only a Keras model under executor='tensorflow' takes one of Keras's; "
            "everywhere SoftmaxCrossEntropyLoss() is SparseCategoricalCrossentropy(from_logits=True), and "
            "MeanSquaredErrorLoss() is MeanSquaredError()"
        )


def as_loss(given: Any) -> Any:
    """The loss that an experiment is given in one of its forms; what is none is left as it is.

    A Loss; "model"; a loss of Keras's, which is d5ray's own where there is one; a function of
    (output, labels) that gives a tensor of PyTorch, such as `torch.nn.CrossEntropyLoss()`.
    """
    from d5ray.ops.losses.mean_squared_error_loss import MeanSquaredErrorLoss  # noqa: PLC0415
    from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss  # noqa: PLC0415

    if given == "model":
        return ModelLoss()
    if isinstance(given, Loss):
        return given
    if isinstance(given, type):
        if issubclass(given, Loss) or not hasattr(given, "forward"):
            return given
        try:
            return as_loss(given())
        except TypeError as error:
            raise ConfigurationError(
                f"loss={given.__name__} cannot be made: {error}: give an instance"
            ) from error
    if type(given).__module__.partition(".")[0] == "keras":
        kind = type(given).__name__
        if kind == "SparseCategoricalCrossentropy" and given.get_config().get("from_logits"):
            return SoftmaxCrossEntropyLoss()
        if kind == "MeanSquaredError":
            return MeanSquaredErrorLoss()
        return FunctionLoss(LabelsFirst(given), classifies=kind.startswith("Sparse"), classes_axis=-1)
    return FunctionLoss(given) if callable(given) else given
