"""Timetable of a pipeline's stages, predicted or measured: bubble, busy and idle time, picture"""

from dataclasses import dataclass
from os import PathLike
from typing import final

from d5ray.distributed.pipeline.actions import Span
from d5ray.distributed.pipeline.picture import MOST_SPANS, as_svg, as_text


@final
@dataclass(frozen=True, repr=False)
class Timetable:
    """A pass of a pipeline: the spans of every stage, in their order. A notebook shows the picture.

    seconds: of the whole pass, from its begin at 0.
    """

    name: str
    stages: tuple[tuple[Span, ...], ...]
    seconds: float

    @property
    def busy_seconds(self) -> tuple[float, ...]:
        """The seconds in which each stage computes."""
        return tuple(sum(span.seconds for span in spans) for spans in self.stages)

    @property
    def bubble(self) -> float:
        """The share of the pass (0..1) in which a stage does not compute, on average over the stages."""
        whole = len(self.stages) * self.seconds
        return 1 - sum(self.busy_seconds) / whole if whole else 0.0

    @property
    def title(self) -> str:
        """The number of stages, the seconds and the bubble on one line."""
        stages = len(self.stages)
        return f"{stages} stage{'s' * (stages != 1)} · {self.seconds:.4g} s · bubble {self.bubble:.1%}"

    def draw(self, path: str | PathLike[str] | None = None) -> str:
        """A row for each stage as an SVG, which is also written to `path`: forward blue, backward green."""
        return as_svg(self, path)

    def _repr_svg_(self) -> str | None:
        """The picture, in a notebook; none of a pass so long that nobody could read it."""
        return self.draw() if sum(map(len, self.stages)) <= MOST_SPANS else None

    def __str__(self) -> str:
        return as_text(self)

    def __repr__(self) -> str:
        return f"Timetable({self.name}: {self.title})"
