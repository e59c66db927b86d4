"""WorkspaceReuse (WR): each layer as quick as it can be when it may use so much workspace for itself"""

import math
from dataclasses import dataclass, field
from typing import final

from d5ray.checks import check_count
from d5ray.errors import ConfigurationError
from d5ray.networks.microbatch.fronts import pareto_front
from d5ray.networks.microbatch.kernels import Division, LayerKernels, Part
from d5ray.networks.microbatch.sizes import MicroBatchSizes, PowersOfTwo


@final
@dataclass(frozen=True)
class WorkspaceReuse:
    """T(b) = min( Tµ(b), min over 1 ≤ b' ≤ b / 2 of Tµ(b') + T(b − b') ).

    T(b) are the seconds of b samples, Tµ(b) those of the quickest kernel for b samples whose workspace is at
    most the limit, ∞ where there is none (Oyama et al., arXiv:1804.04806, section III-C).
    """

    limit_bytes: int
    sizes: MicroBatchSizes = field(default_factory=PowersOfTwo)

    def __post_init__(self) -> None:
        check_count("limit_bytes", self.limit_bytes, 0)

    def choose(self, layer: LayerKernels, batch_size: int) -> Division:
        """The quickest division of a mini-batch.

        Raises `ConfigurationError` where every division needs more workspace than the limit.
        """
        allowed = layer.of_sizes(self.sizes.of(batch_size))
        quickest = {
            size: min(fitting, key=lambda kernel: (kernel.seconds, kernel.workspace_bytes))
            for size, kernels in allowed.kernels.items()
            if (fitting := [each for each in kernels if each.workspace_bytes <= self.limit_bytes])
        }
        seconds = [0.0, *[math.inf] * batch_size]
        first = [0] * (batch_size + 1)  # the size of one part of the best division
        for samples in range(1, batch_size + 1):
            for size, kernel in quickest.items():
                if (size == samples or size <= samples // 2) and (
                    kernel.seconds + seconds[samples - size] < seconds[samples]
                ):
                    seconds[samples], first[samples] = kernel.seconds + seconds[samples - size], size
        if not math.isfinite(seconds[batch_size]):
            least = pareto_front(allowed, batch_size)[-1].workspace_bytes
            raise ConfigurationError(
                f"the layer {layer.layer!r} cannot compute {batch_size} samples with {self.limit_bytes:,} "
                f"bytes of workspace: however they are divided, it needs at least {least:,}; raise the limit"
            )
        parts, left = [], batch_size
        while left:
            parts.append(Part(first[left], quickest[first[left]]))
            left -= first[left]
        return Division(layer.layer, tuple(sorted(parts, key=lambda part: -part.size)))
