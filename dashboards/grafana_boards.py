"""The four dashboards of Grafana: the overview of a run, communication, parameter servers, one agent"""

from typing import Final

from d5ray.dashboards.grafana_charts import (
    OF_SERVER,
    Board,
    Chart,
    Line,
    exchanged,
    figure,
    of_ranks,
    of_runs,
    own,
    per_step,
    phases,
)
from d5ray.dashboards.promql import by, gauge, rate, total
from d5ray.metrics import mirrored as m

RUNS: Final = 'run=~"$run",recipe=~"$recipe"'
AGENTS: Final = f'{RUNS},rank=~"$rank"'
AGENT: Final = 'run="$run",rank="$rank",role="agent"'
SERVERS: Final = f'{RUNS},role="server"'
AGGREGATOR: Final = f'{RUNS},role="aggregator"'
FRAMEWORKS: Final = ("torch", "tensorflow", "numpy", "cupy")
EXCHANGE: Final = 'phase="exchange"'


def _operators(title: str, description: str, query: str, axis: str, unit: str = "short") -> Chart:
    line = Line(query, "{{rank}} · {{run}}")
    return Chart(title, description, (line,), axis=axis, unit=unit, names=FRAMEWORKS, width=8)


def _waiting(where: str) -> Chart:
    return Chart(
        "Waiting",
        "The share of the time that an agent waits for others, mean over the agents: at the servers, at "
        "windows for averages, for letters.",
        (Line(by("run, at", "avg", rate("run, rank, at", m.WAIT_SECONDS, where)), "{{at}} · {{run}}"),),
        axis="share of the time",
        unit="percentunit",
        names=("servers", "windows", "letters"),
    )


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
        of_ranks(
            "Training loss",
            "Of the latest batch of each agent. A gap is a loss that is no number.",
            gauge("run, rank", "max", m.LOSS, AGENTS),
            "loss (1)",
            lowest=None,
        ),
        of_ranks(
            "Test accuracy",
            "Share of the test set that is classified correctly, at the latest evaluation.",
            gauge("run, rank", "max", m.ACCURACY, AGENTS),
            "share of the test set",
            "percentunit",
            highest=1.0,
        ),
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

COMMUNICATION: Final = Board(
    "d5ray-communication",
    "d5ray: communication between agents",
    "What level 3 costs: bytes, messages, waiting, and how far the agents' models are apart.",
    ("recipe", "run", "rank"),
    (
        of_ranks(
            "Share of exchange",
            "The share of a step that communicates, the wait for others included.",
            f"{rate('run, rank', m.PHASE_SECONDS, f'{AGENTS},{EXCHANGE}')} / "
            f"{rate('run, rank', m.STEP_SECONDS, AGENTS)}",
            "share of a step",
            "percentunit",
            highest=1.0,
        ),
        Chart(
            "Exchange, measured and predicted",
            "Mean over the agents; predicted from what d5ray doctor --network measured.",
            (
                Line(per_step("run", m.PHASE_SECONDS, RUNS, only=EXCHANGE), "measured · {{run}}"),
                Line(per_step("run", m.PREDICTED_SECONDS, RUNS), "predicted · {{run}}"),
            ),
            axis="seconds a step",
            unit="s",
            names=("measured", "predicted"),
        ),
        exchanged(RUNS),
        of_ranks(
            "Bytes of a step",
            "What a step of each agent sends, on average.",
            per_step("run, rank", m.SENT_BYTES, AGENTS),
            "bytes a step",
            "decbytes",
        ),
        of_ranks(
            "Messages",
            "Messages that each agent sends.",
            rate("run, rank", m.SENT_MESSAGES, AGENTS),
            "messages a second",
        ),
        of_ranks(
            "Size of a message",
            "Bytes sent over messages sent.",
            f"{rate('run, rank', m.SENT_BYTES, AGENTS)} / {rate('run, rank', m.SENT_MESSAGES, AGENTS)}",
            "bytes a message",
            "decbytes",
        ),
        _waiting(AGENTS),
        of_runs(
            "Imbalance",
            "The step time of the slowest agent over the mean of all, in the latest steps; 1 is even.",
            f"{gauge('run', 'max', m.STEP_TIME, RUNS)} / {gauge('run', 'avg', m.STEP_TIME, RUNS)}",
            "slowest over mean (1)",
        ),
        of_runs(
            "Consensus distance",
            "How far the parameters of agents that do not wait are from their mean, as a share of its norm.",
            gauge("run", "max", m.CONSENSUS_DISTANCE, RUNS),
            "share of the norm (1)",
            "percentunit",
        ),
        of_ranks(
            "Pace",
            "Training samples a second of each agent, in its latest steps.",
            gauge("run, rank", "max", m.SAMPLES_PER_SECOND, AGENTS),
            "samples a second",
        ),
    ),
)

PARAMETER_SERVERS: Final = Board(
    "d5ray-servers",
    "d5ray: parameter servers",
    "How old what agents push is, what they wait for, and how evenly the servers work.",
    ("recipe", "run", "rank"),
    (
        of_ranks(
            "Staleness",
            "Updates of the servers' parameters since the agent of a pushed gradient had read them.",
            gauge("run, rank", "max", m.STALENESS, AGENTS),
            "updates",
        ),
        of_ranks(
            "Ahead of the slowest",
            "Pushes by which each agent is ahead of the slowest, at most.",
            gauge("run, rank", "max", m.CLOCK_GAP, AGENTS),
            "pushes",
        ),
        Chart(
            "Pushes and pulls",
            "What all agents together push, and how often they read.",
            (
                Line(rate("run", m.PUSHES, RUNS), "pushes · {{run}}"),
                Line(rate("run", m.PULLS, RUNS), "pulls · {{run}}"),
            ),
            axis="operations a second",
            names=("pushes", "pulls"),
        ),
        Chart(
            "Requests",
            "Requests that each server answers.",
            (Line(rate("run, rank", m.REQUESTS, SERVERS), OF_SERVER),),
            axis="requests a second",
        ),
        Chart(
            "Servers at work",
            "The share of the time in which each server works on requests; near 100 % the agents queue.",
            (Line(rate("run, rank", m.BUSY_SECONDS, SERVERS), OF_SERVER),),
            axis="share of the time",
            unit="percentunit",
        ),
        of_runs(
            "Balance",
            "The work of the busiest server over the mean of all; 1 is even.",
            f"{by('run', 'max', rate('run, rank', m.BUSY_SECONDS, SERVERS))} / "
            f"{by('run', 'avg', rate('run, rank', m.BUSY_SECONDS, SERVERS))}",
            "busiest over mean (1)",
        ),
        Chart(
            "Requests that wait",
            "Requests that each server holds back now, for others or for their turn.",
            (Line(gauge("run, rank", "max", m.WAITING, SERVERS), OF_SERVER),),
            axis="requests",
        ),
        of_ranks(
            "Queue as agents find it",
            "Requests that waited when another one came, mean over those of each agent.",
            gauge("run, rank", "max", m.SERVER_QUEUE, AGENTS),
            "requests",
        ),
        _waiting(AGENTS),
        Chart(
            "Versions",
            "Updates of each server's parameters so far.",
            (Line(gauge("run, rank", "max", m.VERSION, SERVERS), OF_SERVER),),
            axis="updates",
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
        of_ranks(
            "Loss",
            "Of the latest training batch. A gap is a loss that is no number.",
            gauge("run, rank", "max", m.LOSS, AGENT),
            "loss (1)",
            lowest=None,
        ),
        of_ranks(
            "Test accuracy",
            "Share of the test set that is classified correctly, at the latest evaluation.",
            gauge("run, rank", "max", m.ACCURACY, AGENT),
            "share of the test set",
            "percentunit",
            highest=1.0,
        ),
        phases(AGENT),
        of_ranks(
            "Throughput",
            "Training samples a second.",
            rate("run, rank", m.SAMPLES, AGENT),
            "samples a second",
        ),
        exchanged(AGENT),
        _waiting(AGENT),
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
