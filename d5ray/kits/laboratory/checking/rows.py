"""Rules of the checker on rows: all there, once, of known metrics, and agents agree after a death"""

import json
import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from d5ray.kits.laboratory.checking.folder import MOST_SHOWN, Folder
from d5ray.metrics.definitions.catalogue import CATALOGUE

AGENT = re.compile(r"TrainingAgent\(rank=(\d+)\)")


def names(folder: Folder) -> Iterator[str]:
    """The rule that all rows are of this run, which lies in the folder of its name."""
    run_id = folder.row["run_id"]
    if folder.path.resolve().name != run_id:
        yield f"the folder is called {folder.path.resolve().name}, the run {run_id}"
    for name, table in folder.tables.items():
        if "run_id" not in table.column_names:
            continue
        others = set(table["run_id"].unique().to_pylist()) - {run_id}
        if others:
            yield f"{name} has rows of {', '.join(sorted(map(str, others)))}: the run is {run_id}"


def rows(folder: Folder) -> Iterator[str]:
    """The rule that every row that was recorded is there once."""
    row, samples = folder.row, folder.tables["samples"]
    if row["rows"] is None:
        yield "how many rows were recorded is not said"
    elif samples.num_rows != row["rows"]:
        yield f"samples has {samples.num_rows} rows, {row['rows']} were recorded"
    counted = samples.group_by(["agent", "attempt"]).aggregate(
        [("seq", "count"), ("seq", "max"), ("seq", "min")]
    )
    for each in counted.to_pylist()[:MOST_SHOWN]:
        if each["seq_min"] != 0 or each["seq_max"] != each["seq_count"] - 1:
            yield (
                f"{each['agent']} has {each['seq_count']} rows with numbers from {each['seq_min']} to "
                f"{each['seq_max']}: they must count from 0 without a gap"
            )
    keys = samples.select(["agent", "attempt", "seq"]).group_by(["agent", "attempt", "seq"]).aggregate([])
    if keys.num_rows != samples.num_rows:
        yield f"{samples.num_rows - keys.num_rows} rows of samples stand there twice"


def agents(folder: Folder) -> Iterator[str]:
    """The rule that rows of an agent have its rank, and the experiment has that agent."""
    count = folder.row["agents"] if folder.trains else None
    for name in ("samples", "events"):
        pairs = folder.tables[name].select(["agent", "rank"]).group_by(["agent", "rank"]).aggregate([])
        for pair in pairs.to_pylist():
            found = AGENT.fullmatch(pair["agent"])
            if found is None:
                continue
            rank = int(found[1])
            if rank != pair["rank"]:
                yield f"{name} has rows of {pair['agent']} with the rank {pair['rank']}"
            elif count is not None and rank >= count:
                yield f"{name} has rows of {pair['agent']}, but the run had {count} agents"


def units(folder: Folder) -> Iterator[str]:
    """Every metric is what d5ray calls so, in its unit, and what cannot be negative is not."""
    samples = folder.tables["samples"]
    found = samples.group_by(["metric", "unit"]).aggregate([("value", "min")]).to_pylist()
    for each in found:
        known = CATALOGUE.get(each["metric"])
        if known is not None and known.unit != each["unit"]:
            yield f"{each['metric']} is in {each['unit']!r}: its unit is {known.unit!r}"
        least = each["value_min"]
        if known is not None and known.kind in ("cost", "rate", "count") and least is not None and least < 0:
            yield f"{each['metric']} has the value {least}: it cannot be negative"
    for each in folder.tables["metrics"].to_pylist():
        known = CATALOGUE.get(each["name"])
        for column in ("unit", "direction", "kind"):
            if known is not None and each[column] != getattr(known, column):
                what = f"the {column} {each[column]!r}"
                yield f"metrics gives {each['name']} {what}: d5ray has {getattr(known, column)!r}"


def steps(folder: Folder) -> Iterator[str]:
    """Every agent recorded every step, at times that go forward, and no more steps than are said."""
    row, samples = folder.row, folder.tables["samples"]
    of_agents = pc.and_(pc.equal(samples["metric"], "step_time"), pc.equal(samples["scope"], "agent"))
    done = samples.filter(of_agents)
    if not folder.trains:
        return
    if row["steps"] is None:
        yield "how many steps were done is not said"
        return
    events = folder.tables["events"]
    happened = set(events["name"].to_pylist())
    if not done.num_rows:
        if row["steps"]:
            yield f"{row['steps']} steps are said to be done, and none is recorded"
        return
    if (last := pc.max(done["step"]).as_py() + 1) != row["steps"]:
        yield f"{row['steps']} steps are said to be done, {last} are recorded"
    if happened & {"agent_died", "joined", "connection_lost"}:
        return
    first = _resumed(events) if "resumed" in happened else 0
    for rank in done["rank"].unique().to_pylist()[: MOST_SHOWN * 100]:
        own = done.filter(pc.equal(done["rank"], rank))
        numbers, ends = own["step"].to_numpy(), own["t_mono"].to_numpy()
        missing = sorted(set(range(first, row["steps"])) - set(numbers.tolist()))
        if missing:
            yield f"rank {rank} did not record {len(missing)} of {row['steps']} steps, such as {missing[0]}"
        if (np.diff(ends[np.argsort(numbers, kind="stable")]) < 0).any():
            yield f"rank {rank} ended a later step before an earlier one"


def clocks(folder: Folder) -> Iterator[str]:
    """The rule that the times of both clocks of a process differ by a constant.

    The monitor of the driver's node is a thread of the aggregator: each that was restored has another one.
    """
    samples, names = folder.tables["samples"], folder.tables["events"]["name"].cast(pa.utf8())
    restored = names.to_pylist().count("aggregator_restored")
    apart = pc.subtract(samples["t_wall"].cast(pa.int64()), samples["t_mono"])
    table = samples.select(["agent", "attempt"]).append_column("apart", apart)
    wanted = [("apart", "min"), ("apart", "max"), ("apart", "count_distinct")]
    for each in table.group_by(["agent", "attempt"]).aggregate(wanted).to_pylist():
        constants = 1 + restored if each["agent"].startswith("NodeMonitor(") else 1
        if each["apart_count_distinct"] > constants:
            seconds = (each["apart_max"] - each["apart_min"]) * 1e-9
            yield f"the clocks of {each['agent']} drift apart by {seconds:.3g} s: its times were changed"


def _resumed(events: pa.Table) -> int:
    """The step at which the run went on."""
    found = [row for row in events.to_pylist() if row["name"] == "resumed"]
    return int(found[0]["step"] if found[0]["step"] is not None else json.loads(found[0]["detail"])["step"])


FORMED_AGAIN = ("agreed", "group_formed_again", "agent_restarted")


def agreements(folder: Folder) -> Iterator[str]:
    """Agents that train one model had the same whenever their group was formed again after a death."""
    events = [
        each | {"detail": json.loads(each["detail"] or "{}")}
        for each in folder.tables["events"].to_pylist()
        if each["name"] in FORMED_AGAIN
    ]
    of_driver = [each["detail"] for each in events if each["rank"] < 0]
    alike: dict[int, list[list[int]]] = {}  # of each group those that train the same: of a mesh a share each
    for detail in of_driver:
        alike.setdefault(detail["group"], []).append(detail["members"])
    for each in events:
        group = each["detail"].get("group")  # none where an agent's peers do not wait for it
        if group is None or group in alike:
            continue
        void = group < max(alike, default=0)  # another one died in it, before all had agreed
        if each["name"] != "agreed" or not void:
            yield f"{each['name']} of rank {each['rank']}: on what group {group} agreed is not recorded"
    for detail in of_driver:
        if not detail["one_model"]:
            continue
        group = detail["group"]
        others = {rank for members in alike[group] for rank in members} - set(detail["members"])
        hashes = {int(rank): text for rank, text in detail["sha256"].items()}
        told = [each for each in events if each["rank"] >= 0 and each["detail"].get("sha256")]
        hashes |= {
            each["rank"]: each["detail"]["sha256"]
            for each in told
            if each["detail"]["group"] == group and each["rank"] not in others
        }
        if len(set(hashes.values())) > 1 or not all(hashes.values()) or set(hashes) != set(detail["members"]):
            listed = ", ".join(f"rank {rank}: {str(text)[:12]}…" for rank, text in sorted(hashes.items()))
            yield (
                f"group {group}, formed again at step {detail['step']}, has the hashes {listed}: all of "
                f"{detail['members']} must have the same"
            )
