"""MultiBoxLoss: what a single-shot detector is trained by, where its boxes are and what is in them"""

from typing import TYPE_CHECKING, final

from d5ray.checks import check_count, check_kind, check_share
from d5ray.errors import ConfigurationError
from d5ray.kits.workloads.losses.default_boxes import CENTRE, SIZE, DefaultBoxes
from d5ray.operators.loss import Loss

if TYPE_CHECKING:
    import torch


@final
class MultiBoxLoss(Loss):
    """L = mean over images of (1/P) ( Σ₊ smooth-L1(offset − true offset) + Σ₊,₋ cross-entropy )   (SSD).

    A default box is positive, +, if it is the one that overlaps a true box most, or overlaps one by
    `overlap` at least; P of them are. Of the others those count, −, whose score for "nothing" is worst:
    P times `negatives`. Unlike in the paper (Liu et al., arXiv:1512.02325) P is the image's own, not the
    batch's, so that L is a mean over images, whoever computes which; without boxes P counts as 1.

    Scores: (batch, A, 5 + classes), see `DefaultBoxes`. Targets: (batch, most, 5) float32, a row for a box:
    its class, x₁, y₁, x₂, y₂; rows of class −1 are no boxes.
    """

    classifies = weighted = False

    def __init__(self, boxes: DefaultBoxes, overlap: float = 0.5, negatives: int = 3) -> None:
        check_kind("boxes", boxes, DefaultBoxes, "DefaultBoxes, which tell where the boxes lie")
        check_share("overlap", overlap)
        check_count("negatives", negatives, low=0)
        self.boxes = boxes
        self.overlap = overlap
        self.negatives = negatives

    def check(self, output_shape: tuple[int, ...], classes: int) -> None:
        self.boxes.check(output_shape, classes)

    def torch(self, scores: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
        import torch  # noqa: PLC0415 - loaded when asked for
        from torch.nn.functional import cross_entropy, smooth_l1_loss  # noqa: PLC0415

        if labels.ndim != 3 or labels.shape[2] != 5:
            raise ConfigurationError(
                f"{self!r} needs targets (batch, most, 5), found {tuple(labels.shape)}: class, x1, y1, x2, y2"
            )
        classes, offsets = matched(self.boxes, labels, self.overlap)  # (batch, A), (batch, A, 4)
        positive = classes > 0
        count = positive.sum(dim=1).clamp(min=1)  # (batch,)
        apart = smooth_l1_loss(scores[..., :4], offsets, reduction="none").sum(dim=2)
        surprise = cross_entropy(scores[..., 4:].transpose(1, 2), classes, reduction="none")  # (batch, A)
        others = surprise.detach().masked_fill(positive, -1.0)
        rank = others.argsort(dim=1, descending=True).argsort(dim=1)
        counted = positive | (rank < self.negatives * count[:, None])
        total = (apart * positive).sum(dim=1) + (surprise * counted).sum(dim=1)
        mean: torch.Tensor = (total / count).mean()
        return mean


def matched(
    boxes: DefaultBoxes, targets: "torch.Tensor", least: float
) -> "tuple[torch.Tensor, torch.Tensor]":
    """The targets of the default boxes: classes (batch, A), from 1, or 0 for nothing; offsets (batch, A, 4).

    least: the overlap with a true box that is enough to be its.
    """
    import torch  # noqa: PLC0415 - loaded when asked for

    own = torch.from_numpy(boxes.corners).to(targets)  # (A, 4)
    there = targets[..., 0] >= 0  # (batch, most)
    overlaps = _overlap(own, targets[..., 1:]).masked_fill(~there[:, None, :], -1.0)  # (batch, A, most)
    best, of = overlaps.max(dim=2)  # (batch, A)
    nearest = overlaps.argmax(dim=1)  # (batch, most)
    for place in range(targets.shape[1]):  # later ones win where two boxes have the same nearest
        rows = there[:, place].nonzero()[:, 0]
        best[rows, nearest[rows, place]] = 2.0
        of[rows, nearest[rows, place]] = place
    true = torch.gather(targets, 1, of[..., None].expand(-1, -1, 5))  # (batch, A, 5)
    classes = torch.where(best >= least, true[..., 0] + 1, 0.0).long()
    centred = torch.from_numpy(boxes.centred).to(targets)
    low, high = true[..., 1:3], true[..., 3:]
    centre = ((low + high) / 2 - centred[:, :2]) / centred[:, 2:] / CENTRE
    size = ((high - low).clamp(min=1e-6) / centred[:, 2:]).log() / SIZE
    return classes, torch.cat([centre, size], dim=2)


def _overlap(own: "torch.Tensor", true: "torch.Tensor") -> "torch.Tensor":
    """Intersection over union (batch, A, most) of boxes (A, 4) and (batch, most, 4)."""
    ours, theirs = own[None, :, None], true[:, None]
    low = ours[..., :2].maximum(theirs[..., :2])
    high = ours[..., 2:].minimum(theirs[..., 2:])
    shared = (high - low).clamp(min=0).prod(dim=3)
    areas = [(boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(dim=3) for boxes in (ours, theirs)]
    return shared / (areas[0] + areas[1] - shared).clamp(min=1e-12)
