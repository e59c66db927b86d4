"""The places where an agent's rows go: the run's tables, and a monitoring system beside them"""

from collections.abc import Callable
from typing import Any, Protocol

from d5ray.metrics.exports.exported_rows import Readings
from d5ray.metrics.record.recorder import Send


class Sink(Protocol):
    """The place where an agent's rows go."""

    def samples(self, batch: Any) -> None:
        """Take a batch of rows of the table `metrics`."""

    def frames(self, batch: Any) -> None:
        """Rows of a frame in their compact form, see `d5ray.metrics.record.columns.expand`."""

    def events(self, batch: Any) -> None:
        """Take a batch of rows of the table `events`."""

    def file(self, name: str, data: bytes) -> None:
        """A file in the run's folder."""

    def drain(self) -> None:
        """Return when everything sent has been acknowledged."""


class RowExporter(Protocol):
    """The way of an agent's rows and readings to a monitoring system."""

    def watched(self, send: Send) -> Send:
        """A wrapper of `send`, the batches of which are exported too."""

    def start(self, read: Callable[[], Readings] | None = None) -> None:
        """Begin. read: the agent's readings; called from another thread."""
