"""The four dashboards of Grafana: the overview of a run, communication, parameter servers, one agent"""

from typing import Final

from d5ray.dashboards.grafana.charts import (
    AGENT,
    AGENTS,
    AGGREGATOR,
    RUNS,
    Board,
    Chart,
    Line,
    accuracy,
    exchanged,
    figure,
    loss,
    of_ranks,
    of_runs,
    own,
    per_step,
    phases,
    waiting,
)
from d5ray.dashboards.grafana.level3_boards import COMMUNICATION, PARAMETER_SERVERS
from d5ray.dashboards.grafana.promql import by, gauge, rate, total
from d5ray.metrics.exports import exported_metrics as m

FRAMEWORKS: Final = ("torch", "tensorflow", "numpy", "cupy")


def _operators(title: str, description: str, query: str, axis: str, unit: str = "short") -> Chart:
    line = Line(query, "{{rank}} · {{run}}")
    return Chart(title, description, (line,), axis=axis, unit=unit, names=FRAMEWORKS, width=8)


OVERVIEW: Final = Board(
    "d5ray-overview",
    "d5ray: overview of a run",
    "Does it learn, how quickly, is everybody there. The record is the run's own tables: d5ray show RUN.",
    ("recipe", "run", "rank"),
    (
        figure(
            "Agents that train", "Agents in a training now.", gauge("run", "sum", m.TRAINING, RUNS), "agents"
        ),
        figure(
            "Agents of the run",
            "Agents that take part: neither dead nor still to come.",
            gauge("run", "max", m.AGENTS, RUNS),
            "agents",
        ),
        figure(
            "Latest group",
            "How often the agents formed a new group, after a death or for one that came; the first is 0.",
            gauge("run", "max", m.EPOCH, RUNS),
            "number",
        ),
        figure(
            "Steps",
            "Steps of the agent that is furthest.",
            by("run", "max", total("run, rank", m.STEPS, RUNS)),
            "steps",
            width=6,
        ),
        figure(
            "Failures",
            "Agents and servers that died, lost a peer, failed, or came to a loss that is no number.",
            f"{total('run', m.FAILURES, RUNS)} or {gauge('run', 'max', m.AGENTS, RUNS)} * 0",
            "failures",
            width=6,
        ),
        loss("Training loss", AGENTS),
        accuracy(AGENTS),
        of_ranks(
            "Test loss",
            "Mean loss over the test set, at the latest evaluation.",
            gauge("run, rank", "max", m.TEST_LOSS, AGENTS),
            "loss (1)",
            lowest=None,
        ),
        of_runs(
            "Throughput",
            "Training samples that all agents together process in a second.",
            rate("run", m.SAMPLES, RUNS),
            "samples a second",
        ),
        of_ranks(
            "Step time",
            "Mean time of a step of each agent; of agents that wait for each other it is the slowest's.",
            per_step("run, rank", m.STEP_SECONDS, AGENTS),
            "seconds a step",
            "s",
        ),
        phases(RUNS),
        exchanged(RUNS),
        own(AGENTS),
        Chart(
            "Rows of the record",
            "Rows that reached the aggregator, and those that it wrote: fewer where some came twice.",
            (
                Line(rate("run", m.ROWS_RECEIVED, RUNS), "received · {{run}}"),
                Line(rate("run", m.ROWS_WRITTEN, RUNS), "written · {{run}}"),
            ),
            axis="rows a second",
            names=("received", "written"),
        ),
        of_runs(
            "Aggregator at work",
            "The share of the time in which the aggregator writes; near 100 % it holds up the agents.",
            rate("run", m.BUSY_SECONDS, AGGREGATOR),
            "share of the time",
            "percentunit",
        ),
        _operators(
            "Operators: rate",
            "Of d5ray bench operators: operations a second of the latest call, by framework.",
            gauge("run, rank", "max", m.FLOP_RATE, RUNS),
            "operations a second",
        ),
        _operators(
            "Operators: time",
            "Of d5ray bench operators: the latest call, by framework.",
            gauge("run, rank", "max", m.OPERATOR_TIME, RUNS),
            "seconds a call",
            "s",
        ),
        _operators(
            "Operators: calls",
            "Of d5ray bench operators: calls that were timed, by framework.",
            total("run, rank", m.CALLS, RUNS),
            "calls",
        ),
    ),
)

ONE_AGENT: Final = Board(
    "d5ray-agent",
    "d5ray: one agent",
    "Everything about one agent of one run.",
    ("run", "rank"),
    (
        figure(
            "It trains",
            "1 while it trains, 0 otherwise.",
            gauge("run", "max", m.TRAINING, AGENT),
            "yes (1) or no (0)",
        ),
        figure("Steps", "Steps so far.", total("run", m.STEPS, AGENT), "steps", width=10),
        figure("Samples", "Training samples so far.", total("run", m.SAMPLES, AGENT), "samples", width=10),
        loss("Loss", AGENT),
        accuracy(AGENT),
        phases(AGENT),
        of_ranks(
            "Throughput",
            "Training samples a second.",
            rate("run, rank", m.SAMPLES, AGENT),
            "samples a second",
        ),
        exchanged(AGENT),
        waiting(AGENT),
        of_ranks(
            "Parameters it read",
            "Updates that the servers' parameters had when it read them last.",
            gauge("run, rank", "max", m.VERSION, AGENT),
            "updates",
        ),
        own(AGENT),
    ),
    single=True,
)

BOARDS: Final = (OVERVIEW, COMMUNICATION, PARAMETER_SERVERS, ONE_AGENT)
