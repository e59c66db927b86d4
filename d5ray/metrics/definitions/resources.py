"""Resources that a run used: processors, GPUs, memory and energy, as each node's monitor recorded them"""

from abc import ABC
from itertools import pairwise
from typing import final

import numpy as np
import pyarrow as pa

from d5ray.metrics.definitions.families import MetricOfRows
from d5ray.metrics.judge.criteria import Metric, RunTables
from d5ray.metrics.statistics.estimates import Rows, edges_of, of_each_run, over_steps
from d5ray.metrics.statistics.intervals import Estimate
from d5ray.metrics.statistics.time_series import mean

UNAVAILABLE = "unavailable"
ABSENT = "unavailable: there is no"  # how the status of a row begins whose sensor is about a thing not there
NODE_TIME = "node_time"  # s, from one sample of a node to the next
NOT_WATCHED = (
    "unavailable: no node was looked at while it trained: set monitor_seconds to more than 0, train for "
    "longer than that; a simulation has no nodes"
)


class _OfNodes(MetricOfRows, ABC):
    """A metric that the monitor of each node records."""

    @final
    def why_none(self, rows: Rows) -> str:
        return _why_none(rows)


class Utilisation(_OfNodes, ABC):
    """A share that every node's monitor samples; value: the mean over nodes, then over time.

    Samples follow one another once a second, and resemble their neighbours as steps do.
    """

    unit = "1"
    direction = "max"
    kind = "ratio"
    aggregation = "mean over what is sampled at a time, mean over time"
    phase = "train"

    def of(self, rows: Rows) -> Estimate:
        # the k-th samples of all that are sampled, such as the agents' processes, belong together
        what = np.unique([rows.words("node"), rows.words("scope")], axis=1, return_inverse=True)[1]
        order = np.lexsort((rows.wall, what, rows.run))
        edges = edges_of(rows.run[order], what[order])
        place = np.empty(len(rows), np.int64)
        place[order] = np.arange(len(rows)) - np.repeat(edges[:-1], np.diff(edges))
        order = np.lexsort((place, rows.run))
        moments = edges_of(rows.run[order], place[order])
        runs = rows.run[order][moments[:-1]]
        values = np.add.reduceat(rows.value[order], moments[:-1]) / np.diff(moments)
        return over_steps(runs, mean(values), "samples")


class PeakMemoryMetric(_OfNodes, ABC):
    """The most bytes that were in use at any time, of whoever used most; an exact fact of the run."""

    unit = "B"
    direction = "min"
    kind = "cost"
    aggregation = "largest over time, largest over those who use it"

    def of(self, rows: Rows) -> Estimate:
        return of_each_run(rows.run, rows.value, np.max)


class EnergyUsed(Metric, ABC):
    """The joules of all nodes while they trained: a sum of what counters showed from sample to sample.

    One sample that failed makes the sum unavailable: what was used meanwhile is not known, and not guessed.
    An exact fact of the run.
    """

    unit = "J"
    direction = "min"
    kind = "cost"
    aggregation = "sum over samples and nodes"

    def reads(self) -> tuple[str, ...]:
        return (self.name,)

    def estimate(self, run: RunTables) -> Estimate:
        rows = Rows(run, self.name, "train")
        if not len(rows):
            return Estimate(None, reason=_why_none(Rows(run, self.name)))
        if rows.unavailable:
            failed = f"{rows.unavailable} of {rows.unavailable + len(rows)} samples failed"
            return Estimate(None, reason=f"unavailable: {failed} ({'; '.join(rows.reasons)})")
        return of_each_run(rows.run, rows.value, np.sum)


@final
class NodeTime(_OfNodes):
    """The time for which nodes were watched while they trained, all nodes together."""

    name = NODE_TIME
    unit = "s"
    direction = "min"
    kind = "cost"
    aggregation = "sum over samples and nodes"
    description = "the time from one sample of a node to the next"
    phase = "train"

    def of(self, rows: Rows) -> Estimate:
        return of_each_run(rows.run, rows.value, np.sum)


@final
class ProcessorUtilisation(Utilisation, name="processor_utilisation"):
    """The share of a node's processor time in use, by all processes."""


@final
class ProcessUtilisation(Utilisation, name="process_utilisation"):
    """Processor seconds of an agent's process in a second; more than 1 with several threads."""


@final
class DeviceUtilisation(Utilisation, name="device_utilisation"):
    """The share of time in which a GPU of the node computes."""


@final
class ProcessPeakMemory(PeakMemoryMetric, name="peak_memory"):
    """The peak memory of an agent's process, without swapped memory."""


@final
class DevicePeakMemory(PeakMemoryMetric, name="device_peak_memory"):
    """The largest sampled memory in use on a GPU, by all processes."""


@final
class ControlGroupPeakMemory(PeakMemoryMetric, name="control_group_peak_memory"):
    """The peak memory of the control group (the container) since its start."""


@final
class ProcessorEnergy(EnergyUsed, name="processor_energy"):
    """Energy of the processors' packages, cores and all else in them included."""


@final
class MemoryEnergy(EnergyUsed, name="memory_energy"):
    """Energy of the memory, if the processor measures it separately."""


@final
class DeviceEnergy(EnergyUsed, name="device_energy"):
    """Energy of the GPUs."""


PARTS: tuple[EnergyUsed, ...] = (ProcessorEnergy(), MemoryEnergy(), DeviceEnergy())


@final
class Energy(EnergyUsed):
    """Energy of processors, memory and GPUs together, as far as a node has them.

    It is unavailable if a part that exists cannot be read: the sum would be too small.
    """

    name = "energy"
    description = "energy of processors, memory and GPUs together"

    def reads(self) -> tuple[str, ...]:
        return (ProcessorEnergy.name,)

    def estimate(self, run: RunTables) -> Estimate:
        return _together(run, "train")


@final
class EnergyAboveIdle(EnergyUsed):
    """`Energy` minus the idle energy of the nodes in the same time.

    Σ over nodes of (E − P T), with the idle power P = E₀/T₀ that its monitor measured before.
    """

    name = "energy_above_idle"
    aggregation = "sum over samples and nodes, less idle power times time"
    description = "energy less that of the same nodes when idle"

    def reads(self) -> tuple[str, ...]:
        return (ProcessorEnergy.name,)

    def estimate(self, run: RunTables) -> Estimate:
        used, idle = _together(run, "train"), _together(run, "idle")
        seconds = {phase: Rows(run, NODE_TIME, phase) for phase in ("train", "idle")}
        if used.value is None:
            return used
        runs = np.unique(seconds["train"].run)
        if len(runs) > 1:
            return Estimate(None, reason="unavailable: of several runs together; ask each of them")
        base = float(seconds["idle"].value.sum())
        if not base or idle.value is None:
            return Estimate(None, reason="unavailable: no idle time was measured before the training")
        # nodes are sampled alike, so that idle energy over idle time is the mean power of one node
        power = idle.value / base
        value = used.value - power * float(seconds["train"].value.sum())
        return Estimate(value, n=1, sample_unit="run", exact=True)


def _together(run: RunTables, phase: str) -> Estimate:
    """All parts' joules in a phase, in each run; unavailable where one is there and cannot be read."""
    totals: dict[int, float] = {}
    for part in PARTS:
        rows, anywhere = Rows(run, part.name, phase), Rows(run, part.name)
        if not len(anywhere) and not anywhere.unavailable and part is PARTS[0]:
            return Estimate(None, reason=NOT_WATCHED)
        absent = not len(anywhere) and all(reason.startswith(ABSENT) for reason in anywhere.reasons)
        if absent and part is not PARTS[0]:
            continue
        if not len(rows) or rows.unavailable:
            return Estimate(None, reason=anywhere.why_none(part.name))
        for a, b in pairwise(edges_of(rows.run)):
            number = int(rows.run[a])
            totals[number] = totals.get(number, 0.0) + float(rows.value[a:b].sum())
    return of_each_run(np.array(sorted(totals)), np.array([totals[n] for n in sorted(totals)]), np.sum)


def _why_none(rows: Rows) -> str:
    return "; ".join(rows.reasons) or NOT_WATCHED


def node_seconds(run: RunTables) -> dict[str, float]:
    """The node seconds of every run: from its first row to its last, times its nodes."""
    samples = run["samples"]
    times = samples.select(["run_id", "node"]).append_column("at", samples["t_wall"].cast(pa.int64()))
    spans = times.group_by("run_id").aggregate([("at", "min"), ("at", "max"), ("node", "count_distinct")])
    return {
        row["run_id"]: (row["at_max"] - row["at_min"]) * 1e-9 * row["node_count_distinct"]
        for row in spans.to_pylist()
    }
