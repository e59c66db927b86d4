"""CTCLoss: the likelihood of a sequence of labels, of scores for frames that nobody has aligned with it"""

from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from d5ray.errors import ConfigurationError, DataError
from d5ray.operators.loss import Loss

if TYPE_CHECKING:
    import torch

Floats = npt.NDArray[np.floating[Any]]


@final
class CTCLoss(Loss):
    """L = −(1/M) Σ_n log p(l_n | s_n),  p(l | s) = Σ_{π: B(π) = l} Π_t softmax(s[t])[π_t]   (CTC).

    Scores (batch, T, classes + 1), a row for every frame; the last one is that of the blank. Labels
    (batch, most), classes in their order, with `ignored` behind those that there are; each sample has one at
    least. B leaves out repetitions, then blanks, so that π has a blank between two equal labels. M is the
    number of labels, so that L is in nats a label, whatever is computed together. Infinite where a sample
    has too few frames for its labels. For PyTorch and NumPy.

    Graves, Fernández, Gomez, Schmidhuber, doi 10.1145/1143844.1143891.
    """

    classifies = False
    weighted = True

    def __init__(self, ignored: int = -100) -> None:
        if isinstance(ignored, bool) or not isinstance(ignored, (int, np.integer)):
            raise ConfigurationError(f"ignored is {ignored!r}: it must be an integer, such as -100")
        self.ignored: int = int(ignored)

    def check(self, output_shape: tuple[int, ...], classes: int) -> None:
        if len(output_shape) != 3 or output_shape[-1] != classes + 1:
            raise ConfigurationError(
                f"the model's output has the shape {tuple(output_shape[1:])} a sample, but {self!r} over "
                f"{classes} classes needs (frames, {classes + 1}): a score for every class, and the blank's"
            )

    def torch(self, scores: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
        import torch  # noqa: PLC0415 - loaded when asked for

        self._check_shapes(scores.shape, labels.shape)
        lengths = labels.ne(self.ignored).sum(dim=1)
        self._check_labels(int(lengths.min()))
        frames = torch.full_like(lengths, scores.shape[1])
        total = torch.nn.functional.ctc_loss(
            scores.log_softmax(dim=-1).transpose(0, 1), labels.clamp(min=0), frames, lengths,
            blank=scores.shape[-1] - 1, reduction="sum",
        )  # fmt: skip
        mean: torch.Tensor = total / lengths.sum()
        return mean

    def numpy(self, scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> float:
        logs, truths = self._given(scores, labels)
        total = sum(_paths(log, truth)[2] for log, truth in zip(logs, truths, strict=True))
        return float(-total / sum(map(len, truths)))

    def numpy_gradient(
        self, scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        logs, truths = self._given(scores, labels)
        gradient = np.exp(logs)
        for row, log, truth in zip(gradient, logs, truths, strict=True):
            forwards, backwards, likelihood = _paths(log, truth)
            share = np.exp(forwards + backwards - likelihood)  # (T, 2 labels + 1): of all paths
            row -= share @ np.eye(log.shape[1])[_with_blanks(truth, log.shape[1] - 1)]
        return (gradient / sum(map(len, truths))).astype(scores.dtype)

    def _given(self, scores: Any, labels: Any) -> tuple[Floats, list[npt.NDArray[np.int64]]]:
        """log softmax of the scores, and the labels of each sample that there are."""
        self._check_shapes(scores.shape, labels.shape)
        truths = [row[row != self.ignored] for row in labels]
        self._check_labels(min(map(len, truths)))
        shifted = scores - scores.max(axis=-1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)), truths

    def _check_shapes(self, scores: tuple[int, ...], labels: tuple[int, ...]) -> None:
        if len(scores) != 3 or len(labels) != 2:
            raise ConfigurationError(
                f"{self!r} needs scores (batch, frames, classes + 1) and labels (batch, most), found "
                f"{tuple(scores)} and {tuple(labels)}"
            )

    def _check_labels(self, fewest: int) -> None:
        if fewest == 0:
            raise DataError(
                f"{self!r}: a sample has no label: leave it out, or give silence a class of its own"
            )


def _with_blanks(truth: npt.NDArray[np.int64], blank: int) -> npt.NDArray[np.int64]:
    """l′: a blank before, between and behind the labels."""
    found = np.full(2 * len(truth) + 1, blank)
    found[1::2] = truth
    return found


def _paths(logs: Floats, truth: npt.NDArray[np.int64]) -> tuple[Floats, Floats, float]:
    """log α_t(s), log β_t(s) without the frame t itself, (T, 2 labels + 1), and log p(l | s)."""
    symbols = _with_blanks(truth, logs.shape[1] - 1)
    jumps = np.r_[False, False, (symbols[2:] != symbols[:-2]) & (symbols[2:] != logs.shape[1] - 1)]
    seen = logs[:, symbols]  # (T, 2 labels + 1)
    forwards, backwards = (np.full_like(seen, -np.inf) for _ in range(2))
    forwards[0, :2] = seen[0, :2]
    backwards[-1, -2:] = 0.0
    for t in range(1, len(seen)):
        forwards[t] = _reached(forwards[t - 1], jumps) + seen[t]
    for t in reversed(range(len(seen) - 1)):
        later = (backwards[t + 1] + seen[t + 1])[::-1]
        backwards[t] = _reached(later, np.r_[False, False, jumps[2:][::-1]])[::-1]
    return forwards, backwards, float(np.logaddexp(*forwards[-1, -2:]))


def _reached(before: Floats, jumps: npt.NDArray[np.bool_]) -> Floats:
    """The logarithm of the sum over staying, going on by one, and by two where a blank may be left out."""
    found = np.logaddexp(before, np.r_[-np.inf, before[:-1]])
    return np.logaddexp(found, np.where(jumps, np.r_[-np.inf, -np.inf, before[:-2]], -np.inf))
