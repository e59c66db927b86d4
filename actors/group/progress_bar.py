"""A progress bar for people: on a terminal, not in a pipe."""

import math
import sys
from types import TracebackType

from d5ray.agent.loop import Progress as Position
from d5ray.display.console import BarColumn, Field, TimeRemainingColumn, progress


class Bar:
    """Shows how far a training is, on standard error; invisible where that is not a terminal."""

    def __init__(self, name: str, first: int, last: int, *, show: bool) -> None:
        self.visible = show and sys.stderr.isatty()
        self.interval = 0.25 if self.visible else 1.0  # seconds between two looks
        self._progress = progress(
            Field("{task.description}"),
            BarColumn(),
            Field("{task.completed:.0f}/{task.total:.0f} steps"),
            Field("{task.fields[values]}"),
            TimeRemainingColumn(),
            show=self.visible,
        )
        self._task = self._progress.add_task(name, total=last, completed=first, values="")

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def update(self, position: Position | None) -> None:
        """Show where the first agent is."""
        if position is None:
            return
        values = f"epoch {position.epoch}"
        if math.isfinite(position.loss):
            values += f"  loss {position.loss:.4f}"
        if position.accuracy is not None:
            values += f"  accuracy {position.accuracy:.4f}"
        self._progress.update(self._task, completed=position.step, values=values)
