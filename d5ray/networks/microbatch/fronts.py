"""Pareto fronts: of all divisions of a mini-batch those that no other beats in both time and workspace

D(b) = Pareto( K(b) ∪ { c ⊕ r : 1 ≤ b' ≤ b / 2, c ∈ K(b'), r ∈ D(b − b') } )

K(b) are the kernels for b samples; ⊕ adds seconds and takes the larger workspace (Oyama et al.,
arXiv:1804.04806, section III-D). The smallest part of a division has at most half of the samples, so
nothing is missed.
"""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from d5ray.checks import check_count
from d5ray.errors import ConfigurationError
from d5ray.networks.microbatch.kernels import Division, LayerKernels, Part

WHOLE = -1  # in place of the rest of a division that has but one part


@final
@dataclass(frozen=True)
class _Front:
    """Points by ascending seconds and descending workspace, each with how it came about.

    first: the size of one part. kernel: which of the size's kernels. rest: the point of the front of the
    samples that are left, or WHOLE.
    """

    seconds: npt.NDArray[np.float64]
    workspace: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    kernel: npt.NDArray[np.int64]
    rest: npt.NDArray[np.int64]


def pareto_front(layer: LayerKernels, batch_size: int) -> tuple[Division, ...]:
    """The divisions of a mini-batch that are worth a choice, the quickest first.

    Raises `ConfigurationError` where no sizes with kernels add up to the mini-batch.
    """
    check_count("batch_size", batch_size, 1)
    fronts: list[_Front | None] = [None]
    for samples in range(1, batch_size + 1):
        fronts.append(_front(layer, fronts, samples))
    found = fronts[batch_size]
    if found is None:
        raise ConfigurationError(
            f"the layer {layer.layer!r} cannot be divided: it has kernels for micro-batches of "
            f"{', '.join(map(str, sorted(layer.kernels))) or 'no size'}, and none of them add up to "
            f"{batch_size} samples"
        )
    return tuple(_division(layer, fronts, batch_size, point) for point in range(len(found.seconds)))


def _front(layer: LayerKernels, fronts: list[_Front | None], samples: int) -> _Front | None:
    """D(samples), of those for fewer; None where there is no division."""
    candidates = [
        _Front(*(np.asarray(column) for column in zip(*rows, strict=True)))
        for rows in [
            [
                (each.seconds, each.workspace_bytes, samples, number, WHOLE)
                for number, each in enumerate(layer.kernels.get(samples, ()))
            ]
        ]
        if rows
    ]
    for size in sorted(layer.kernels):
        rest = fronts[samples - size] if size <= samples // 2 else None
        if rest is None:
            continue
        for number, each in enumerate(layer.kernels[size]):
            count = len(rest.seconds)
            candidates.append(
                _Front(
                    rest.seconds + each.seconds,
                    np.maximum(rest.workspace, each.workspace_bytes),
                    np.full(count, size),
                    np.full(count, number),
                    np.arange(count),
                )
            )
    return _best(candidates) if candidates else None


def _best(candidates: list[_Front]) -> _Front:
    """The candidates that no other beats, of equal ones the first."""
    columns: list[npt.NDArray[Any]] = [
        np.concatenate([getattr(each, name) for each in candidates])
        for name in ("seconds", "workspace", "first", "kernel", "rest")
    ]
    seconds, workspace = columns[:2]
    order = np.lexsort((workspace, seconds))
    before = np.minimum.accumulate(workspace[order])
    better = np.concatenate(([True], before[1:] < before[:-1]))
    return _Front(*(column[order[better]] for column in columns))


def _division(layer: LayerKernels, fronts: list[_Front | None], samples: int, point: int) -> Division:
    parts = []
    while point != WHOLE:
        front = fronts[samples]
        assert front is not None  # it was followed here
        size, number = int(front.first[point]), int(front.kernel[point])
        parts.append(Part(size, layer.kernels[size][number]))
        samples, point = samples - size, int(front.rest[point])
    return Division(layer.layer, tuple(sorted(parts, key=lambda part: -part.size)))
