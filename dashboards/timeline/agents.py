"""Writes what agents did themselves: their steps with parts and waits, evaluations, and what happened"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from d5ray.dashboards.timeline.clocks import Clocks
from d5ray.dashboards.timeline.operations import KINDS
from d5ray.dashboards.timeline.steps import TimedStep, Wait, nanoseconds
from d5ray.dashboards.timeline.tracks import EXCHANGES, OTHERS, STEPS, Tracks
from d5ray.metrics.views.view import RunView

NOT_SHOWN: Final = (*KINDS, "probe", "links", "train", "measured", "load")  # shown otherwise, or no moments
MOST_TOLD: Final = 2000  # characters of an event's text


def step(tracks: Tracks, done: TimedStep, wait: Wait | None) -> None:
    """Draw one step of an agent: what it counted, its parts, and in its exchange the wait for the last."""
    track = tracks.agent(done.rank, STEPS)
    facts = {name: _told(value) for name, value in done.facts.items()}
    begin = tracks.slice(
        track, f"step {done.number}", done.begin, done.end, "step",
        step=done.number, epoch=done.epoch, phase=done.phase, **facts,
    )  # fmt: skip
    for part in done.laid_out():
        tracks.trace.slice(track, part.name, max(part.begin, begin), part.end, "part")
        if part.name == "exchange":
            _exchange(tracks, done, wait)
    if done.overlaps and done.parts["exchange"]:
        part = done.exchange
        tracks.slice(tracks.agent(done.rank, EXCHANGES), "exchange", part.begin, part.end, "part")


def _exchange(tracks: Tracks, done: TimedStep, wait: Wait | None) -> None:
    track, (_, begin, end) = tracks.agent(done.rank, STEPS), done.exchange
    together = begin if wait is None else min(begin + wait.duration, end)
    if wait is not None:
        name = f"wait for agent {wait.behind}"
        tracks.trace.slice(track, name, begin, together, "wait", behind=wait.behind)
    if end > together:
        tracks.trace.slice(track, "communicate", together, end, "communicate")


def arrows(tracks: Tracks, same: Sequence[TimedStep], waited: Mapping[int, Wait]) -> None:
    """Draw arrows from whoever came last into the exchange of a step to the end of each wait for it."""
    by_rank = {done.rank: done for done in same if not done.overlaps}
    for rank, wait in waited.items():
        if rank in by_rank and wait.behind in by_rank:
            late, own = by_rank[wait.behind], by_rank[rank].exchange
            came = tracks.agent(wait.behind, STEPS), min(late.exchange.begin, late.end - 1)
            heard = tracks.agent(rank, STEPS), min(own.begin + wait.duration, own.end)
            tracks.trace.flow("waited for", came, heard, "wait")


def evaluations(tracks: Tracks, view: RunView, clocks: Clocks, first: int, last: int) -> None:
    """Draw the agents' evaluations after these steps, with what they came to."""
    names = ("evaluation_time", "test_accuracy", "test_loss")
    values = ", ".join(f"max(value) filter (metric = '{name}') as {name}" for name in names)
    wanted = ", ".join(f"'{name}'" for name in names)
    found = view.ask(
        f"select rank, node, step, max(t_mono) as ended, {values} from samples where metric in ({wanted}) "
        f"and scope = 'agent' and step between {first} and {last} group by rank, attempt, node, step "
        "having evaluation_time is not null order by rank, ended",
    )
    for row in found.to_pylist():
        end = clocks.common(row["ended"], row["node"])
        begin = end - nanoseconds(row["evaluation_time"])
        told = {name: _told(row[name]) for name in names[1:]}
        tracks.slice(tracks.agent(row["rank"], OTHERS), "evaluation", begin, end, "evaluation", **told)


def epochs(tracks: Tracks, view: RunView, clocks: Clocks, first: int, last: int) -> None:
    """An instant where an agent's epoch ends."""
    found = view.ask(
        "select rank, node, epoch, max(t_mono) as ended, max(step) as step from samples "
        "where metric = 'step_time' and scope = 'agent' and epoch is not null "
        f"group by rank, node, epoch having max(step) between {first} and {last} order by rank, ended",
    )
    for row in found.to_pylist():
        at = clocks.common(row["ended"], row["node"])
        track = tracks.agent(row["rank"], OTHERS)
        tracks.trace.instant(track, f"epoch {row['epoch']} ends", at, "epoch", step=row["step"])


def events(
    tracks: Tracks, view: RunView, clocks: Clocks, first: int, last: int, begin: int, end: int
) -> None:
    """Write the other events of these steps, or between these times (ns) if no step is told; failures too."""
    names = ", ".join(f"'{name}'" for name in NOT_SHOWN)
    found = view.ask(
        "select rank, name, step, t_mono, epoch_ns(t_wall) - t_mono as shift, duration, detail from events "
        f"where name not in ({names}) and (step is null or step between {first} and {last + 1}) "
        "order by t_mono",
    )
    for row in found.to_pylist():
        at = clocks.of_event(row["t_mono"], row["shift"])
        if row["step"] is None and not begin <= at <= end:
            continue
        track, told = tracks.agent(row["rank"], OTHERS), _plain(row["detail"])
        if row["duration"] is None:
            tracks.trace.instant(track, row["name"], max(at, begin), "event", **told)
        else:
            tracks.slice(
                track, row["name"], max(at - nanoseconds(row["duration"]), begin), max(at, begin), "event",
                **told,
            )  # fmt: skip


def _plain(detail: str | None) -> dict[str, Any]:
    """An event's detail, whatever wrote it; long texts are cut."""
    try:
        found = json.loads(detail or "{}", parse_constant=str)
    except ValueError:
        found = {"detail": detail}
    if not isinstance(found, dict):
        found = {"detail": found}
    return {"told": json.dumps(found)[:MOST_TOLD]} if len(str(detail)) > MOST_TOLD else {"told": found}


def _told(value: float | None) -> float | str | None:
    """JSON has no NaN and no infinity."""
    return value if value is None or abs(value) < float("inf") else str(value)
