"""The experiment that a run keeps: written without code wherever that can be, read only where that is safe

A pickle is a program. It is kept where the experiment has the user's own code, and read where this user's
runs made it in this D5RAY_HOME (see `d5ray.metrics.record.own_experiments`), or where the user says that he
trusts it.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from d5ray.archive.serialized import Serialized, deserialized, serialized
from d5ray.distributed.faults.fault import Failure
from d5ray.distributed.faults.plan import Faults
from d5ray.distributed.optimizers.exchange import adopt_former_flags, adopt_former_names
from d5ray.distributed.simulation.compute import ComputeTime
from d5ray.distributed.simulation.links import Links
from d5ray.errors import ConfigurationError, StorageError
from d5ray.experiment import Experiment
from d5ray.identity.moved import unpickled
from d5ray.metrics.probes.environment import d5ray_version
from d5ray.metrics.record.artifacts import ARRAYS, EXPERIMENT, PICKLED, keep, sha256_of
from d5ray.metrics.record.own_experiments import is_made_here, remember
from d5ray.metrics.record.reader import Run

NO_FAULTS: Final = Faults()
MOST_PICKLED_BYTES: Final = 2**28  # a larger one, which carries data, is kept only where a replay needs it


@final
@dataclass(frozen=True)
class SimulationSettings:
    """The settings of a simulated run besides its experiment."""

    network: Links
    compute: ComputeTime
    failures: tuple[Failure, ...] = ()
    faults: Faults = NO_FAULTS


@final
@dataclass(frozen=True)
class Archived:
    """Everything that repeating a run needs: the experiment, and of a simulation its other settings."""

    experiment: Experiment
    simulated: SimulationSettings | None = None


@final
@dataclass(frozen=True)
class ArchiveFiles:
    """The files of a run that keep its experiment; none where it cannot be kept, or is too large.

    sha256: of the one that the others hang on, for the table `runs`.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def sha256(self) -> str | None:
        """The SHA-256 of the file that the experiment is read from, None where none is kept."""
        for name in (EXPERIMENT, PICKLED):
            if name in self.files:
                return sha256_of(self.files[name])
        return None

    def keep(self, folder: Path) -> None:
        """Write the files into a run's folder; raises `StorageError`."""
        if self.sha256 is not None:
            remember(self.sha256)
        keep(folder, self.files)


def kept(archived: Archived, pickled: Callable[[], bytes], *, needed: bool = False) -> ArchiveFiles:
    """The files by which a run keeps its experiment. pickled: makes the pickle of `archived`, if needed.

    needed: however large it is.
    """
    try:
        form = serialized(_parts(archived))
    except ConfigurationError:
        pass
    else:
        return ArchiveFiles({EXPERIMENT: form.text} | ({} if form.arrays is None else {ARRAYS: form.arrays}))
    try:
        data = pickled()
    except Exception:  # whatever an object of the user's raises; in a simulation nothing needs the pickle
        return ArchiveFiles()
    return ArchiveFiles({PICKLED: data}) if needed or len(data) <= MOST_PICKLED_BYTES else ArchiveFiles()


def read(run: Run, *, trust: bool = False) -> Archived | None:
    """The experiment and settings that the run keeps; None where it keeps nothing.

    trust: read a pickle that comes from elsewhere, too, which runs the code in it. Raises
    `ConfigurationError` for one without it, and where the file is not the one of the run's row, or says
    something else than it.
    """
    row = run.row
    for name, made in ((EXPERIMENT, _plain), (PICKLED, _pickled)):
        try:
            data = (run.folder / name).read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageError(f"{run.folder / name} cannot be read ({error.strerror or error})") from error
        recorded = row["experiment_sha256"]
        if recorded is not None and sha256_of(data) != recorded:
            raise ConfigurationError(
                f"{run.folder / name} is not the file that the run {run.name} kept: its SHA-256 is "
                f"{sha256_of(data)[:12]}…, recorded is {recorded[:12]}…"
            )
        return made(run, data, trust)
    return None


def _parts(archived: Archived) -> dict[str, Any]:
    simulated = archived.simulated
    parts = {} if simulated is None else {name: getattr(simulated, name) for name in vars(simulated)}
    if not parts.get("faults"):
        parts.pop("faults", None)
    return {"experiment": archived.experiment, **parts}


def _plain(run: Run, data: bytes, trust: bool) -> Archived:
    arrays = run.folder / ARRAYS
    form = Serialized(data, arrays.read_bytes() if arrays.is_file() else None)
    parts = deserialized(form, run.folder / EXPERIMENT)
    experiment = parts.pop("experiment", None)
    kinds = {"network": Links, "compute": ComputeTime, "failures": tuple, "faults": Faults}
    wrong = [name for name, part in parts.items() if not isinstance(part, kinds.get(name, ()))]
    complete = not parts or parts.keys() | {"faults"} == kinds.keys()
    if not isinstance(experiment, Experiment) or wrong or not complete:
        raise ConfigurationError(
            f"{run.folder / EXPERIMENT} holds no experiment: take the run as it was made"
        )
    described = json.dumps(experiment.describe(), sort_keys=True)
    if described != run.row["experiment"] and run.row["d5ray_version"] == d5ray_version():
        raise ConfigurationError(
            f"{run.folder / EXPERIMENT} holds another experiment than the run {run.name} says that it ran"
        )
    return Archived(experiment, SimulationSettings(**parts) if parts else None)


def _pickled(run: Run, data: bytes, trust: bool) -> Archived:
    file = run.folder / PICKLED
    if not trust and not is_made_here(sha256_of(data)):
        raise ConfigurationError(
            f"{file} is a program, which reading it would run, and no run of yours in this home made it; "
            "if you trust whoever made it, as you trust him whose programs you run: --trust (trust=True)"
        )
    try:
        found = unpickled(data)
    except Exception as error:  # its modules may be missing here, and it may hold anything
        raise ConfigurationError(
            f"{file} cannot be read ({type(error).__name__}: {error}): it needs the modules that the run "
            "was made with"
        ) from error
    if isinstance(found, Experiment):  # as earlier versions kept it
        found = Archived(found)
    if not isinstance(found, Archived):
        raise ConfigurationError(f"{file} holds a {type(found).__name__}, no experiment")
    # earlier versions did not keep the description along, which follows from sources that may be missing here
    vars(found.experiment).setdefault("_described", json.loads(run.row["experiment"]))
    for kind in reversed(inspect.getmro(type(found.experiment.distributed))):
        adopt_former_flags(kind)
        adopt_former_names(kind)
    return found
