"""Exporters: a run written once, as a whole, to a place where nothing stood"""

import importlib
from abc import ABC, abstractmethod
from pathlib import Path
from types import ModuleType
from typing import ClassVar, final

from d5ray.errors import ConfigurationError
from d5ray.metrics.record.files import replacing
from d5ray.metrics.record.reader import Run


class Exporter(ABC):
    """A format. What it writes is complete or not there, and nothing that stood there is overwritten."""

    name: ClassVar[str]
    ending: ClassVar[str]  # of the target's name, where the user gives none
    gathers: ClassVar[bool] = False  # whether several runs go into one target

    @abstractmethod
    def export(self, run: Run, out: Path | None) -> Path:
        """Write the run; gives where it went. Raises `ConfigurationError` if something is there already."""

    @final
    def free(self, target: Path) -> Path:
        """The target, where nothing stands yet."""
        if target.exists():
            raise ConfigurationError(
                f"{target} exists: nothing is overwritten, so remove it or name another place with --out"
            )
        above = next(folder for folder in target.absolute().parents if folder.exists())
        if not above.is_dir():
            raise ConfigurationError(f"{target} cannot be made: {above} is not a folder")
        return target


class WholeExporter(Exporter):
    """An export that is one new file or folder."""

    @abstractmethod
    def write(self, run: Run, target: Path) -> None:
        """Make the file or folder `target`."""

    def ending_of(self, run: Run) -> str:
        """The ending of the target's name if the user gives none: `ending`, unless it depends on the run."""
        return self.ending

    @final
    def export(self, run: Run, out: Path | None) -> Path:
        target = self.free(out or Path(f"{run.name}{self.ending_of(run)}"))
        with replacing(target) as part:
            target.parent.mkdir(parents=True, exist_ok=True)
            self.write(run, part)
        return target


def needed(module: str, package: str) -> ModuleType:
    """The module; ConfigurationError tells how to install what it comes with."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"this export needs {package} ({error}): install it with pip install 'd5ray[export]'"
        ) from error
