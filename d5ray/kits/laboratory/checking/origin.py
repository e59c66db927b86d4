"""Rules of the checker on where a run comes from: its recipe, its experiment, the version, the machine"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from d5ray.archive import experiments
from d5ray.distributed.topologies.topology import drawn
from d5ray.errors import D5Error
from d5ray.experiment import Experiment
from d5ray.identity.canonical import digest
from d5ray.identity.fields import LATER, fields_of
from d5ray.kits.laboratory.checking.folder import Folder, short
from d5ray.kits.laboratory.metrics.side_by_side import UNAVAILABLE
from d5ray.metrics.judge.comparable import is_data
from d5ray.metrics.probes.environment import d5ray_version
from d5ray.metrics.record.artifacts import EXPERIMENT, PICKLED, kept_parameters, sha256_of
from d5ray.recipes.engine import library
from d5ray.recipes.engine.recipe import Recipe

NEEDED = ("hostname", "cpu_model", "cores_usable", "memory_bytes", "python", "package_numpy", "package_ray")
PLAIN_KEYS = ("seed", "batch_size", "epochs", "dataset")  # of MUTABLE, which stand so in the experiment
CLOCK_SECONDS = 2.0  # by which the clock may be set back meanwhile


def hashes(folder: Folder) -> Iterator[str]:
    """The recipe's hash is that of FIXED and the data, FIXED is what was run, and MUTABLE leaves it alone."""
    row, fixed, mutable, job = folder.row, folder.fixed, folder.mutable, folder.job
    if not row["recipe_hash"]:
        yield "the run comes from no recipe: nothing was fixed that it could be held to"
        return
    text = json.dumps(fixed, sort_keys=True, separators=(",", ":"), allow_nan=False)
    found = hashlib.sha256(text.encode()).hexdigest()
    if found != row["recipe_hash"]:
        yield f"FIXED has the hash {found[:12]}…, recorded is {row['recipe_hash'][:12]}…"
    for key in sorted(key for key in fixed if is_data(key)):
        if (read := folder.facts(key)) and read != {fixed[key]}:
            yield f"the recipe's hash is of other data than were read: {key} is {short(fixed[key])}"
    for key in sorted(fixed.keys() & mutable.keys()):
        yield f"{key!r} is FIXED and MUTABLE"
    for key, value in fixed.items():
        for found in _run_with(key, fixed, job):
            yield f"{key!r} is FIXED to {short(value)}, but {short(found)} was run"
    for key in sorted(mutable.keys() & job.keys() & set(PLAIN_KEYS)):
        for found in _run_with(key, mutable, job):
            yield f"{key!r} was set to {short(mutable[key])}, but {short(found)} was run"


def shipped(folder: Folder) -> Iterator[str]:
    """A run under the name of a recipe of d5ray is of that recipe: with its FIXED, and its METRICS."""
    row = folder.row
    if not library.is_known(row["recipe"]) or row["d5ray_version"] != d5ray_version():
        return
    module = library.own(row["recipe"])
    own = Recipe.of(module.FIXED, module.MUTABLE, module.METRICS, name=row["recipe"])
    without = digest({key: value for key, value in folder.fixed.items() if not is_data(key)})
    if own.fixed_hash != without:
        yield (
            f"FIXED of the recipe {row['recipe']} of d5ray has the hash {own.fixed_hash[:12]}…, the run's "
            f"{without[:12]}…: what was FIXED is something else under its name"
        )
    if _wanted(own.described()["criteria"]) != _wanted(row["criteria"] or "[]"):
        yield f"the recipe {row['recipe']} of d5ray has other METRICS than the run was to reach"


def _wanted(criteria: str) -> list[dict[str, Any]]:
    """The criteria to be reached, wherever the metrics stood then."""
    return [{key: value for key, value in each.items() if key != "module"} for each in json.loads(criteria)]


def experiment(folder: Folder) -> Iterator[str]:
    """The experiment is whole, and what the other columns say of it."""
    row, job = folder.row, folder.job
    wanted = {field.name for field in fields_of(Experiment)} if folder.trains else set()
    if str(folder.fixed.get("job", "")).startswith("d5ray."):  # a job of the user's may run what it likes
        wanted = {key for key in folder.fixed if key != "job" and not is_data(key)}
    later = {field.name for field in fields_of(Experiment) if field.metadata == LATER}  # not their defaults
    missing = sorted(key for key in wanted - later if key.partition(".")[0] not in _known(job))
    if missing or not job:
        yield f"the experiment does not say {', '.join(missing) or 'anything'}: it must be whole"
    columns = {"seed": row["seed"], "agents": row["agents"]} if folder.trains else {"seed": row["seed"]}
    for column, value in columns.items():
        if value is None:
            yield f"no {column} is recorded: it cannot be done again"
        elif column in job and job[column] != value:
            yield f"{column} is {value} in runs, but the experiment has {short(job[column])}"
    if folder.trains and row["parameters_sha256"] is None and row["status"] == "completed":
        yield "no hash of the parameters is recorded"


def kept(folder: Folder) -> Iterator[str]:
    """The experiment that is kept is the one that was run, and the parameters those that were reached.

    A pickle is compared by its hash alone: nothing is unpickled.
    """
    row = folder.row
    recorded = row["experiment_sha256"]
    file = next(
        (folder.path / name for name in (EXPERIMENT, PICKLED) if (folder.path / name).is_file()), None
    )
    if (file is None) != (recorded is None):
        yield "the experiment that the run kept, or its hash, is not there"
    elif file is not None and file.name == PICKLED and sha256_of(file.read_bytes()) != recorded:
        yield f"{PICKLED} is not the one that the run kept: its hash is another"
    elif file is not None and file.name == EXPERIMENT:
        yield from _plain(folder)
    parameters = kept_parameters(folder.path)
    if parameters:
        found = hashlib.sha256(parameters[min(parameters)].tobytes()).hexdigest()
        if found != row["parameters_sha256"]:
            yield "parameters.npz does not hold the parameters whose hash is recorded"


def _plain(folder: Folder) -> Iterator[str]:
    """The kept experiment can be read, and its graph is the run's."""
    try:
        archived = experiments.read(folder.run)
    except D5Error as error:
        yield str(error)
        return
    topology = None if archived is None else archived.experiment.topology
    if topology is not None and drawn(topology) != folder.row["graph"]:
        yield "the graph in runs is not the one of the experiment's topology"


def machine(folder: Folder) -> Iterator[str]:
    """The machine, the version and the commit are recorded, and everywhere the same."""
    row = folder.row
    known = set(folder.tables["environment"]["key"].to_pylist())
    missing = [key for key in NEEDED if key not in known]
    if missing:
        yield f"the environment lacks {', '.join(missing)}"
        return
    without = any(commit.startswith(UNAVAILABLE) for commit in folder.facts("git_commit"))
    odd = {
        dirty
        for dirty in folder.facts("git_dirty") - {"yes", "no", None}
        if not (without and dirty.startswith(UNAVAILABLE))
    }
    if odd:
        yield f"git_dirty is {', '.join(map(short, odd))}: it must be yes or no where there is a commit"
    dirty = "-dirty" if "yes" in folder.facts("git_dirty") else ""
    commits = {commit + dirty for commit in folder.facts("git_commit")}
    for column, facts in (
        ("d5ray_version", folder.facts("package_d5ray")),
        ("git", commits),
        ("host", folder.facts("hostname")),
    ):
        if row[column] is None:
            yield f"no {column} is recorded"
        elif facts and row[column] not in facts:
            yield f"{column} is {row[column]} in runs, the environment has {', '.join(sorted(facts))}"


def times(folder: Folder) -> Iterator[str]:
    """The rule that a run ended after it began, began after it was named, with rows from between."""
    row = folder.row
    if row["status"] != "completed":
        yield f"the run is {row['status']}: only a completed one counts"
        return
    started, ended = row["started"], row["ended"]
    if started is None or ended is None or ended < started:
        yield f"it started at {started} and ended at {ended}: the end must come later"
        return
    slack = timedelta(seconds=CLOCK_SECONDS)
    named = _named(row["run_id"], started)
    if named is not None and started < named - slack:
        yield f"it started at {started}, before it was named, at {named}"
    if folder.simulated:
        return
    if len(folder.facts("hostname")) > 1:
        slack += timedelta(seconds=60)  # clocks of several nodes
    for name in ("samples", "events"):
        walls = folder.tables[name]["t_wall"]
        if len(walls):
            low, high = _bounds(walls)
            if named is not None and low < named - slack:
                yield f"{name} has rows of {low}, before the run was named, at {named}"
            if high > ended + slack:
                yield f"{name} has rows of {high}, after the run's end at {ended}"
            if name == "samples" and low < started - slack:
                yield f"{name} has rows of {low}, before the run's start at {started}"


def _bounds(instants: pa.ChunkedArray) -> tuple[datetime, datetime]:
    found = pc.min_max(instants.cast(pa.timestamp("us", "UTC"), safe=False))
    return found["min"].as_py(), found["max"].as_py()


def _named(run_id: str, started: datetime) -> datetime | None:
    """The time when the run got its name, which has the second in it."""
    parts = run_id.rsplit("-", 3)
    try:
        return datetime.strptime("".join(parts[1:3]), "%Y%m%d%H%M%S").replace(tzinfo=started.tzinfo)
    except ValueError:
        return None


def _known(job: Mapping[str, Any]) -> set[str]:
    """The keys that the job says something of, also those of what a component was made with."""
    return {*job, *(f"{key}_{what}" for key in job for what in ("args", "kwargs"))}


def _run_with(key: str, fixed: Mapping[str, Any], job: Mapping[str, Any]) -> list[Any]:
    """The value that was run for a key of FIXED, if that is another one."""
    name, dot, leaf = key.partition(".")
    if dot and f"{name}_kwargs" in job:  # an argument of a model, a data set or an executor
        found = job[f"{name}_kwargs"].get(leaf)
    elif dot:
        found = job[name].get(leaf) if isinstance(job.get(name), dict) else None
    elif key not in job:
        return []
    else:
        found = job[key]
        if any(other.startswith(f"{key}.") for other in fixed) and isinstance(found, dict):
            found = found.get("class")  # of which only leaves are fixed
    same = found == fixed[key] or found == [fixed[key]]  # one of what there may be several of
    return [] if same else [found]
