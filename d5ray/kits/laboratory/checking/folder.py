"""Folder of a run as the checker's rules see it: its row, its tables, and the JSON in the row, read once"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, final

import pyarrow as pa

from d5ray.errors import StorageError
from d5ray.metrics.record.reader import Run

Tables = Mapping[str, pa.Table]
MOST_TEXT = 60  # characters of a value
MOST_SHOWN = 5  # of places that break one rule


@final
@dataclass(frozen=True)
class Folder:
    """A run's folder as it is checked."""

    run: Run
    row: Mapping[str, Any]
    tables: Tables

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.run.folder

    @cached_property
    def fixed(self) -> dict[str, Any]:
        """The run's FIXED."""
        return self._json("fixed")

    @cached_property
    def mutable(self) -> dict[str, Any]:
        """The run's MUTABLE, with the overrides."""
        return self._json("mutable")

    @cached_property
    def job(self) -> dict[str, Any]:
        """The description of what was run: an experiment, unless the recipe says otherwise."""
        return self._json("experiment")

    @property
    def trains(self) -> bool:
        """True if the run is the training of an experiment."""
        return "job" not in self.fixed and "problems" not in self.job

    @property
    def simulated(self) -> bool:
        """True if the run's times are virtual."""
        return "simulated" in self.facts("communicator")

    def facts(self, key: str) -> set[str]:
        """The values of a fact of `environment`, of all nodes."""
        rows = self.tables["environment"].to_pylist()
        return {row["value"] for row in rows if row["key"] == key}

    def _json(self, column: str) -> dict[str, Any]:
        found = json.loads(self.row[column] or "{}")
        if not isinstance(found, dict):
            raise StorageError(f"{column} in runs is {short(found)}: it must be an object of JSON")
        return found


class Rule(Protocol):
    """A rule of the checker: one sentence for each place where a folder breaks it."""

    __name__: str

    def __call__(self, folder: Folder) -> Iterator[str]: ...


def short(value: Any) -> str:
    """The value on one line."""
    text = repr(value)
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"
