"""Metrics of agents that do not wait for each other: how old what they use is, what they wait for"""

import json
import math
from abc import ABC
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import ClassVar, Literal, final

import numpy as np

from d5ray.metrics.definitions.families import MetricOfRows, TotalOfAnAgent
from d5ray.metrics.judge.criteria import Direction, Metric, RunTables
from d5ray.metrics.statistics.estimates import Floats, Rows, of_each_run
from d5ray.metrics.statistics.intervals import Estimate

PROBED = 64  # coordinates by which the distance between models is estimated


class _CountOfSteps(MetricOfRows, ABC):
    """A count that agents write at training steps; an exact fact of the run."""

    over: ClassVar[Literal["mean", "max"]]  # how the rows of a run become one value
    unit = "1"
    direction: ClassVar[Direction] = "min"
    kind = "count"
    phase = "train"

    @final
    def of(self, rows: Rows) -> Estimate:
        return of_each_run(rows.run, rows.value, np.mean if self.over == "mean" else np.max)


@final
class Staleness(_CountOfSteps, name="staleness", over="mean", aggregation="mean over pushes"):
    """Updates of the servers' parameters since the agent of a pushed gradient read them.

    With several shards the mean over them. The histogram: `d5ray show RUN`, or
    `d5ray sql RUN "select value, count(*) from samples where metric = 'staleness' group by 1 order by 1"`.
    """


@final
class ClockGap(_CountOfSteps, name="clock_gap", over="max", aggregation="largest over steps and agents"):
    """Pushes by which an agent is ahead of the slowest when the servers answer it."""


@final
class ServerQueue(_CountOfSteps, name="server_queue", over="mean", aggregation="mean over requests"):
    """Requests that wait at a parameter server when another one comes."""


@final
class ParameterVersion(_CountOfSteps, name="parameter_version", over="max", direction="max"):
    """Updates of the servers' parameters so far, the mean over shards, as an agent read them."""

    aggregation = "largest over steps and agents"


@final
class ServerWaitTime(TotalOfAnAgent, name="server_wait_time", unit="s"):
    """The time that an agent's requests waited at the servers, for others or for their turn."""


@final
class WindowWaitTime(TotalOfAnAgent, name="window_wait_time", unit="s"):
    """The time in which an agent averaged with others and reached its own window, waits included."""


@final
class LetterWaitTime(TotalOfAnAgent, name="letter_wait_time", unit="s"):
    """The time that an agent waited for eager messages of others."""


@final
class Pushes(TotalOfAnAgent, name="pushes", unit="1"):
    """The vectors that an agent pushed to the servers."""


@final
class Pulls(TotalOfAnAgent, name="pulls", unit="1"):
    """The times that an agent read the servers' parameters."""


class _RateOfAgents(Metric, ABC):
    """Σ over the agents of (amount / time of its steps), warm-up left out."""

    amount: ClassVar[str]  # a metric
    unit = "1/s"
    direction = "max"
    kind = "rate"

    @final
    def reads(self) -> tuple[str, ...]:
        return (self.amount, "step_time")

    @final
    def estimate(self, run: RunTables) -> Estimate:
        return rate_of_agents(run, self.amount)


@final
class PushRate(_RateOfAgents, name="pushes_per_second", amount="pushes"):
    """Vectors that all agents together push to the servers in a second."""

    aggregation = "pushes over step time of each agent, sum over agents"


@final
class PullRate(_RateOfAgents, name="pulls_per_second", amount="pulls"):
    """Times that all agents together read the servers' parameters in a second."""

    aggregation = "pulls over step time of each agent, sum over agents"


@final
class AsynchronousThroughput(_RateOfAgents, name="asynchronous_samples_per_second", amount="samples"):
    """Training samples that agents of different pace together process in a second.

    `Throughput` takes a step to end for all at once, which is right where agents wait for each other.
    """

    aggregation = "samples over step time of each agent, sum over agents"


@final
class ConsensusDistance(Metric):
    """√( Σ_i ‖x_i − x̄‖² / P ) when all agents had made the same number of steps, as a share of ‖x̄‖.

    Estimated from the same 64 random coordinates of all agents, which each records now and then (event
    `probe`): for coordinates drawn uniformly the ratio is that of the whole vectors but for sampling. Value:
    at the last step that all recorded; the others are in the events.
    """

    name = "consensus_distance"
    unit = "1"
    direction = "min"
    kind = "quality"
    aggregation = "root mean square over agents, last probe"
    description = "how far the agents' parameters are from their mean, as a share of its norm"

    def estimate(self, run: RunTables) -> Estimate:
        distances_by_step = consensus_over_steps(run)
        if not distances_by_step:
            return Estimate(None, reason="unavailable: no step was probed by two agents or more")
        return Estimate(distances_by_step[max(distances_by_step)], n=1, sample_unit="run", exact=True)


@final
class LoadBalance(Metric):
    """The work of the busiest shard over the mean of all: 1 is even. Work is the time spent on requests.

    From the events `load`, which every parameter server leaves at the end.
    """

    name = "load_balance"
    unit = "1"
    direction = "min"
    kind = "ratio"
    aggregation = "largest over mean of the shards"
    description = "the work of the busiest parameter server, as a multiple of the mean"

    def estimate(self, run: RunTables) -> Estimate:
        events = run["events"].select(["name", "detail"]).to_pylist()
        work = [json.loads(e["detail"])["seconds"] for e in events if e["name"] == "load"]
        if not work or not sum(work):
            return Estimate(None, reason="unavailable: no parameter server told its load")
        return Estimate(max(work) * len(work) / sum(work), n=1, sample_unit="run", exact=True)


def consensus_over_steps(run: RunTables) -> dict[int, float]:
    """The consensus distance by step, at those steps that all agents recorded."""
    events = run["events"]
    values: dict[int, dict[int, list[float]]] = defaultdict(dict)
    for event in events.select(["name", "rank", "step", "detail"]).to_pylist():
        if event["name"] == "probe":
            values[event["step"]][event["rank"]] = json.loads(event["detail"])["values"]
    agents = max(map(len, values.values()), default=0)
    distances_by_step = {}
    for step, by_rank in values.items():
        if len(by_rank) == agents > 1:
            distances_by_step[step] = distance_of([by_rank[rank] for rank in sorted(by_rank)])
    return distances_by_step


def distance_of(values: Sequence[Sequence[float]]) -> float:
    """The consensus distance of the values (agents, coordinates); 0 is consensus."""
    return math.sqrt(float((distances(np.array(values)) ** 2).mean()))


def distances(x: Floats) -> Floats:
    """‖x_i − x̄‖ / ‖x̄‖ of each agent (agents,), given x (agents, coordinates); ‖x_i − x̄‖ where x̄ is 0."""
    mean = x.mean(axis=0)
    size = math.sqrt(float((mean**2).sum()))
    apart: Floats = np.sqrt(((x - mean) ** 2).sum(axis=1))
    return apart / size if size else apart


def is_asynchronous(run: RunTables) -> bool:
    """True if the run's agents did not wait for each other."""
    return "train" in set(run["events"]["name"].to_pylist())


def staleness_histogram(run: RunTables) -> dict[int, int]:
    """The number of pushed gradients by the updates that they lacked, from 0 up; each shard counts."""
    found: Counter[int] = Counter()
    for event in run["events"].select(["name", "detail"]).to_pylist():
        if event["name"] in ("push", "push_pull"):
            found.update(
                staleness for staleness in json.loads(event["detail"])["staleness"] if staleness >= 0
            )
    return dict(sorted(found.items()))


def rate_of_agents(run: RunTables, metric: str) -> Estimate:
    """Σ over the agents of (Σ of the metric / Σ step_time) in phase 'train'; an exact fact of each run."""
    amounts, times = Rows(run, metric, "train"), Rows(run, "step_time", "train")
    for rows, name in ((amounts, metric), (times, "step_time")):
        if not len(rows):
            return Estimate(None, reason=rows.why_none(name))
    totals: dict[int, float] = defaultdict(float)
    for number in np.unique(times.run):
        for agent in np.unique(times.agent[times.run == number]):
            seconds = times.value[(times.run == number) & (times.agent == agent)].sum()
            amount = amounts.value[(amounts.run == number) & (amounts.agent == agent)].sum()
            totals[int(number)] += float(amount / seconds) if seconds else math.inf
    runs = np.array(sorted(totals), np.int64)
    return of_each_run(runs, np.array([totals[int(n)] for n in runs]), np.max)
