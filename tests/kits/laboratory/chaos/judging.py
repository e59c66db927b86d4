"""The judge of a trial: did the run end as its policy says, and is what it left right?"""

import json
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import d5ray as d5
from d5ray.errors import first_line
from d5ray.failures.exit_codes import ERROR_EXIT_CODE, EXIT_CODES, INTERRUPTED
from d5ray.faults import Fault
from d5ray.kits.laboratory.checking import checker
from tests.kits.laboratory.chaos.processes import Ended
from tests.kits.laboratory.chaos.trials import FILLS, OF_RAY, Trial

COMPLETES, FAILS, DIES, INTERRUPTS, ENDS = "completes", "fails", "dies", "is interrupted", "ends"
LEFT = "completes or fails"  # where Ray ends in its own time, and maybe this process before
FILLED = "ends with the disk full"  # where nobody can write how
SHORT = "ends as shared memory is full"  # unless nobody needed more of it
ENDED_BY_RAY = 1  # the exit code of a driver that Ray ends when its raylet takes its leave


@dataclass(frozen=True)
class Judged:
    """A trial and what came of it. wrong: a sentence for everything that is not as promised."""

    trial: Trial
    status: str  # of the run; "" where it did not begin
    happened: bool  # the fault that the trial is about
    missed: bool  # which found no victim, as an event says
    wrong: tuple[str, ...]


def judged(trial: Trial, ended: Ended, experiment: d5.Experiment, home: Path, bound: float) -> Judged:
    """Judge a trial by its process and the folder of its run."""
    folders = sorted((home / "runs").glob("*"))
    run = d5.Run(folders[-1]) if folders else None
    row, events = _read(run)
    missed = {told["planned"] for told in _told(events, "fault_missed")}
    happened = {told["planned"] for told in _told(events, "fault")} - missed
    about, status = str(trial.about), str(row.get("status", ""))
    wrong: list[str] = []
    if ended.code is None:
        wrong.append(f"it did not end within {bound:.0f} s")
    else:
        wanted = expected(trial, happened, experiment)
        wrong += _wrong_end(trial, ended, status, wanted)
        if run is not None and status != "running":
            wrong += _wrong_folder(run, status, wanted, events, experiment)
    wrong += [f"it left {each}" for each in ended.left]
    return Judged(trial, status, about in happened, about in missed, tuple(wrong))


def expected(trial: Trial, happened: Set[str], experiment: d5.Experiment) -> str:
    """The end that the run must have, by its policy and by the faults that happened to it, as texts."""
    planned = [fault for fault in trial.faults if str(fault) in happened]
    kinds = {(fault.victim, fault.kind) for fault in planned}
    if ("driver", "kill") in kinds:
        return DIES
    if ("driver", "terminate") in kinds:
        return INTERRUPTS
    of_ray = [fault for fault in planned if fault.victim in OF_RAY and fault.is_fatal]
    if of_ray:
        return FAILS if any(fault.kind == "kill" and fault.during != "closing" for fault in of_ray) else LEFT
    full = [fault.kind for fault in planned if fault.kind in FILLS and fault.seconds is None]
    if full:
        return FILLED if "fill_disk" in full else SHORT
    fatal = [fault for fault in planned if fault.is_fatal and fault.victim in ("agent", "server")]
    if fatal and trial.policy == "stop":
        return ENDS if any(fault.during == "closing" for fault in fatal) else FAILS
    return _with_fewer(trial.policy, [fault for fault in fatal if fault.victim == "agent"], experiment)


def _with_fewer(policy: str, fatal: list[Fault], experiment: d5.Experiment) -> str:
    """The end of a run that goes on after deaths of agents, by how many are left.

    With "replace" those that are too few wait for newcomers. Where nobody is left, newcomers have nobody to
    take the state from, unless servers have it; but one may be there before the last of the others dies.
    """
    agents, rule = experiment.agents or 1, experiment.distributed_optimizer
    gone = {fault.numbers for fault in fatal}
    if policy == "continue" and agents - len(gone) < experiment.faults.min_agents:
        after = any(fault.at_seconds is not None or fault.during == "closing" for fault in fatal)
        return ENDS if after else FAILS  # after the training nobody is needed
    nowhere = len(gone) == agents and not (rule.one_sided and experiment.resolved_servers is not None)
    return ENDS if nowhere and policy != "continue" else COMPLETES


def _told(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """What the events of this name tell."""
    return [json.loads(event["detail"]) for event in events if event["name"] == name]


def _wrong_end(trial: Trial, ended: Ended, status: str, wanted: str) -> Iterator[str]:
    code, last = ended.code, ended.last
    error = code == ERROR_EXIT_CODE
    completed = code in EXIT_CODES.values() and status == "completed"
    failed = error and status in ("failed", "")
    right = {
        COMPLETES: completed,
        FAILS: failed,
        ENDS: completed or error,
        LEFT: completed or failed or (code == ENDED_BY_RAY and status in ("died", "completed")),
        FILLED: completed or (error and status in ("failed", "died") and "disk" in last),
        SHORT: completed or (error and status == "failed" and "/dev/shm" in last),
        DIES: code == -9 and status in ("died", "completed", ""),
        INTERRUPTS: code in (INTERRUPTED, -15, 143) and status in ("interrupted", "completed", ""),
    }[wanted]
    if not right:
        yield (
            f"under on_failure={trial.policy!r} it {wanted}, but its status is {status!r} and its exit code "
            f"{code}: {last[:300]}"
        )
    if "Traceback (most recent call last)" in ended.err:
        yield "it shows a traceback"
    if wanted == FAILS and error and not _names(trial, ended.err):
        yield f"its error names another than the victim: {last[:300]}"


def _names(trial: Trial, err: str) -> bool:
    """True if an error names a victim of the trial, or that too few are left of them."""
    named: list[str] = []
    for fault in trial.faults:
        if fault.victim == "agent":
            named += [f"TrainingAgent(rank={number})" for number in fault.numbers] + ["min_agents"]
        elif fault.victim == "server":
            named += ["ParameterServer(", "TrainingAgent("]
    if not named or any(fault.victim in OF_RAY for fault in trial.faults):
        named += ["Ray", "aggregator", "MetricsAggregator"]
    return any(name in err for name in named)


def _wrong_folder(
    run: d5.Run, status: str, wanted: str, events: list[dict[str, Any]], experiment: d5.Experiment
) -> Iterator[str]:
    found = checker.violations(run)
    if wanted in (DIES, FILLED, LEFT) and status == "died":
        if not found:
            yield "d5ray check finds nothing wrong with a run whose end is not written"
        return
    unfinished = f"the run is {status}: only a completed one counts"
    if status != "completed" and unfinished not in found:
        yield f"d5ray check does not say that {unfinished}"
    yield from (f"d5ray check: {each}" for each in found if each != unfinished)
    least = experiment.faults.min_agents
    fewest = min((told["agents"] for told in _told(events, "agents_changed")), default=least)
    if fewest < least:
        yield f"{fewest} agents trained, and min_agents is {least}"
    rule = experiment.distributed_optimizer
    if status == "completed" and rule.one_model and not rule.one_sided:
        hashes = [told["sha256"] for told in _told(events, "parameters")]
        if not hashes or len(set(hashes[-1].values())) != 1:
            yield f"the agents that are left have different parameters: {hashes[-1:]}"


def _read(run: d5.Run | None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if run is None:
        return {}, []
    try:
        return run.row, run.tables()["events"].to_pylist()
    except d5.D5Error as error:
        return {"status": f"unreadable ({first_line(error)})"}, []
