"""Repeats a run from what its folder keeps, and says what came out the same: verdict, losses, bits"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, final

import pyarrow as pa
import pyarrow.compute as pc

from d5ray.actors.group.run_row import RunOrigin
from d5ray.actors.group.training import TrainingRun
from d5ray.actors.launch import launch
from d5ray.archive import experiments
from d5ray.archive.experiments import Archived
from d5ray.errors import ConfigurationError
from d5ray.failures.exit_codes import INCONCLUSIVE
from d5ray.metrics.judge.comparable import incomparable
from d5ray.metrics.judge.criteria import Criterion
from d5ray.metrics.judge.stored_criteria import criterion_of
from d5ray.metrics.record.own_experiments import is_made_here
from d5ray.metrics.record.reader import Run
from d5ray.metrics.record.schema import table_of
from d5ray.recipes.engine.recipe import judged, overall
from d5ray.simulator import simulate
from d5ray.training.events.checkpoint import Checkpoint


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


SAME: Final = "same"
DIFFERS: Final = "differs"
OPEN: Final = "inconclusive"
GONE: Final = {  # what a run cannot be asked to do again, by its event
    "agent_died": "an agent died in it", "server_died": "a parameter server died in it",
    "agent_died_at_end": "an agent died in it", "server_died_at_end": "a parameter server died in it",
    "resumed": "it went on from a checkpoint",
}  # fmt: skip


def rerun(run: Run, *, trust: bool = False, address: str | None = None, quiet: bool = False) -> Rerun:
    """Do the run again: the same experiment, the same calls of `train`, judged by the same criteria.

    trust: run the user's own code that lies in the folder, and write where its experiment says, although no
    run of this user's made it; address: of a Ray cluster, see `launch`. Raises `ConfigurationError` for a
    run that kept no experiment, was not completed, or in which something happened that cannot be repeated.
    """
    row, events = run.row, run.tables()["events"].to_pylist()
    if row["status"] != "completed":
        raise ConfigurationError(f"the run {run.name} is {row['status']}: only a completed run is repeated")
    archived = experiments.read(run, trust=trust)
    if archived is None:
        raise ConfigurationError(
            f"the run {run.name} kept no experiment: it measured something else than a training, was made by "
            "an earlier d5ray, or its data are too large to be kept; run its recipe again"
        )
    if not trust and not is_made_here(row["experiment_sha256"] or ""):
        _refuse_writing(run, archived)
    for event in events:
        if event["name"] in GONE and not (archived.simulated and event["name"] != "resumed"):
            raise ConfigurationError(f"the run {run.name} cannot be repeated: {GONE[event['name']]}")
    calls = _calls(run, events)
    described = json.loads(row["criteria"] or "[]")
    criteria = [found for each in described if (found := criterion_of(each)) is not None]
    origin = RunOrigin(
        recipe=row["recipe"] or "", recipe_hash=row["recipe_hash"] or "", fixed=row["fixed"] or "{}",
        mutable=row["mutable"] or "{}", criteria=json.dumps([each.described() for each in criteria]),
    )  # fmt: skip
    with _begun(archived, origin, address, quiet) as group:
        for steps in calls:
            group.train(steps, progress=not quiet)
        _judge(group, criteria if described else [])
    lacking = [each["label"] for each in described if criterion_of(each) is None]
    return _compared(run, Run(group.folder), archived, lacking)


def _calls(run: Run, events: list[dict[str, Any]]) -> list[int]:
    """The steps of each call of `train`; agents that wait for each other record none of the first."""
    try:
        calls = [event for event in events if event["name"] == "train" and event["rank"] == 0]
        steps = [int(json.loads(event["detail"])["steps"]) for event in calls]
        first = int(calls[0]["step"] if calls else run.row["steps"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"the run {run.name} does not say which steps it did, as d5ray writes it: {error!r}"
        ) from error
    return [first, *steps] if first else steps


def _refuse_writing(run: Run, archived: Archived) -> None:
    for event in archived.experiment.events if isinstance(archived.experiment.events, tuple) else ():
        if isinstance(event, Checkpoint) and event.path is not None:
            raise ConfigurationError(
                f"the run {run.name} comes from elsewhere, and would write checkpoints into {event.path}: if "
                "you agree, give --trust (trust=True)"
            )


def _begun(archived: Archived, origin: RunOrigin, address: str | None, quiet: bool) -> TrainingRun:
    if archived.simulated is None:
        return launch(archived.experiment, address=address, origin=origin, quiet=quiet)
    told = archived.simulated
    return simulate(
        archived.experiment, told.network, told.compute, origin=origin, failures=told.failures,
        faults=told.faults,
    )  # fmt: skip


def _judge(group: TrainingRun, criteria: list[Criterion]) -> None:
    if not criteria:
        return
    status = group.outcome.status
    verdicts = judged(criteria, group.tables(), status)
    group.close(
        verdict=overall(verdicts, status), verdicts=table_of("verdicts", [each.row for each in verdicts])
    )


def _compared(run: Run, again: Run, archived: Archived, lacking: list[str]) -> Rerun:
    rows = run.row, again.row
    verdicts = rows[0]["verdict"], rows[1]["verdict"]
    losses = [losses_of(each.tables()["samples"]) for each in (run, again)]
    away = _away(*losses)
    bits = losses[0] == losses[1] and rows[0]["parameters_sha256"] == rows[1]["parameters_sha256"]
    promised, why = _promised(run, again, archived)
    differs = [f"other data were read: {told}" for told in incomparable([run, again])]
    open_: list[str] = [] if promised else [why]
    if promised and not bits:
        differs.append(f"the bits, which are promised, are others: losses differ by up to {away:.1e}")
    if lacking:
        open_.append(f"{', '.join(lacking)}: a metric of the user's own, which cannot be judged again")
    elif verdicts[0] != verdicts[1]:
        told = f"the verdict was {verdicts[0]}, now it is {verdicts[1]}"
        (open_ if INCONCLUSIVE in verdicts else differs).append(told)
    undecided = lacking or INCONCLUSIVE in verdicts or (verdicts[0] is None and not promised)
    outcome: Literal["same", "differs", "inconclusive"]
    outcome = DIFFERS if differs else OPEN if undecided and not (promised and bits) else SAME
    return Rerun(run.name, again.name, outcome, (*differs, *open_), verdicts, away, bits, promised)


def losses_of(samples: pa.Table) -> dict[tuple[int, int], float]:
    """The loss that each agent recorded at each step; of a step that was done again, the last."""
    rows = samples.filter(pc.and_(pc.equal(samples["metric"], "loss"), pc.is_valid(samples["value"])))
    rows = rows.sort_by([("attempt", "ascending"), ("seq", "ascending")])
    columns = (rows[name].to_pylist() for name in ("step", "rank", "value"))
    return {(step, rank): value for step, rank, value in zip(*columns, strict=True)}


def _away(first: Mapping[Any, float], second: Mapping[Any, float]) -> float:
    """The largest relative difference of a loss; infinite where one of the runs has other steps."""
    if first.keys() != second.keys():
        return float("inf")
    pairs = [(a, second[at]) for at, a in first.items()]
    return max(
        (abs(a - b) / max(abs(a), abs(b)) for a, b in pairs if a != b and not (a != a and b != b)),
        default=0.0,
    )


def _promised(run: Run, again: Run, archived: Archived) -> tuple[bool, str]:
    """True if both runs must agree to the last bit, and the reason if they need not."""
    if archived.simulated is None and not archived.experiment.in_lockstep:
        return (
            False,
            f"no bits are promised: the agents of {archived.experiment.distributed!r} "
            "do not wait for each other",
        )
    kinds = ("cpu_model", "cpu_flags", "python")
    facts = [
        {(row["key"], row["value"]) for row in each.tables(without=("samples",))["environment"].to_pylist()
         if row["key"] in kinds or row["key"].startswith(("package_", "threads"))}
        for each in (run, again)
    ]  # fmt: skip
    if others := sorted({key for key, _ in facts[0] ^ facts[1]}):
        return False, f"no bits are promised: {', '.join(others)} differ, and with them the order of sums"
    return True, ""
