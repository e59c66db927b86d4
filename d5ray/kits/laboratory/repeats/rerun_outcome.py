"""The outcomes of a run and its repetition"""

from dataclasses import asdict, dataclass
from typing import Any, Literal, final


@final
@dataclass(frozen=True)
class Rerun:
    """The result of repeating a run.

    losses: the largest |a − b| / max(|a|, |b|) of an agent's loss at a step. bits: whether losses and
    parameters agree to the last bit. promised: whether they must.
    """

    run_id: str
    again: str
    outcome: Literal["same", "differs", "inconclusive"]
    reasons: tuple[str, ...]
    verdicts: tuple[str | None, str | None]
    losses: float
    bits: bool
    promised: bool

    @property
    def row(self) -> dict[str, Any]:
        """The result as JSON data."""
        return asdict(self)
