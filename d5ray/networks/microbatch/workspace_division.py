"""WorkspaceDivision (WD): all layers together as quick as they can be within one limit

min Σ_k Σ_c t_kc x_kc   such that   Σ_c x_kc = 1 for every k,   Σ_k Σ_c M_kc x_kc ≤ limit,   x_kc ∈ {0, 1}

t_kc and M_kc are the seconds and the workspace of the division c of the layer k, one of its Pareto front
(Oyama et al., arXiv:1804.04806, section III-D).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from d5ray.checks import check_count
from d5ray.errors import ConfigurationError
from d5ray.networks.microbatch.fronts import pareto_front
from d5ray.networks.microbatch.kernels import Division, LayerKernels
from d5ray.networks.microbatch.sizes import MicroBatchSizes, PowersOfTwo

SCALE = 1e5  # of the objective: HiGHS stops when it is within 1e-6 of the best, whatever the unit


@final
@dataclass(frozen=True)
class WorkspaceDivision:
    """Every layer has workspace of its own, as they need where they run at once; all of it has a limit."""

    limit_bytes: int
    sizes: MicroBatchSizes = field(default_factory=PowersOfTwo)

    def __post_init__(self) -> None:
        check_count("limit_bytes", self.limit_bytes, 0)

    def choose(self, layers: Sequence[LayerKernels], batch_size: int) -> dict[str, Division]:
        """The divisions of a mini-batch, by layer, that together take the least time.

        Raises `ConfigurationError` where the layers need more than the limit even when each takes the least,
        and for two layers of one name.
        """
        names = [layer.layer for layer in layers]
        if not names or len(set(names)) < len(names):
            raise ConfigurationError(
                f"the layers are {', '.join(map(repr, names)) or 'none'}: give at least one, and each once"
            )
        allowed = self.sizes.of(batch_size)
        fronts = [pareto_front(layer.of_sizes(allowed), batch_size) for layer in layers]
        self._check(fronts, batch_size)
        return {division.layer: division for division in _least_time(fronts, self.limit_bytes)}

    def _check(self, fronts: Sequence[tuple[Division, ...]], batch_size: int) -> None:
        least = [front[-1] for front in fronts]
        needed = sum(division.workspace_bytes for division in least)
        if needed > self.limit_bytes:
            most = max(least, key=lambda division: division.workspace_bytes)
            raise ConfigurationError(
                f"the {len(least)} layers cannot compute {batch_size} samples with {self.limit_bytes:,} "
                f"bytes of workspace together: however they are divided, they need at least {needed:,}, "
                f"of which the layer {most.layer!r} {most.workspace_bytes:,}; raise the limit"
            )


def _least_time(fronts: Sequence[tuple[Division, ...]], limit: int) -> list[Division]:
    """One of every front, the 0–1 programme's solution."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - takes a while

    least = [front[-1].workspace_bytes for front in fronts]
    spare = limit - sum(least)
    choices = [
        (layer, each)
        for layer, front in enumerate(fronts)
        for each in front
        if each.workspace_bytes - least[layer] <= spare
    ]
    seconds = np.array([each.seconds for _, each in choices])
    more = np.array([each.workspace_bytes - least[layer] for layer, each in choices]) / max(spare, 1)
    owners = np.array([layer for layer, _ in choices])
    one_each = (owners == np.arange(len(fronts))[:, None]).astype(np.float64)  # (layers, choices)
    unit = max(seconds.max(), np.finfo(np.float64).tiny)
    rows: list[Any] = [LinearConstraint(one_each, 1, 1), LinearConstraint(more[None], -np.inf, 1)]
    while True:
        found = milp(
            seconds / unit * SCALE,
            constraints=rows,
            integrality=np.ones(len(choices)),
            bounds=Bounds(0, 1),
            options={"mip_rel_gap": 0, "presolve": False},  # HiGHS's takes 1e-8 of the limit for 0
        )
        if found.x is None:
            raise ConfigurationError(f"the divisions cannot be chosen: {found.message}")
        taken = [
            int(np.flatnonzero(owners == layer)[found.x[owners == layer].argmax()])
            for layer in range(len(fronts))
        ]
        chosen = [choices[place][1] for place in taken]
        if sum(each.workspace_bytes for each in chosen) <= limit:
            return chosen
        # Over the limit by less than the solver's tolerance: everything but this.
        excluded = np.zeros(len(choices))
        excluded[taken] = 1
        rows.append(LinearConstraint(excluded[None], -np.inf, len(fronts) - 1))
