"""The dashboards of Grafana about level 3: communication between agents, and parameter servers"""

from typing import Final

from d5ray.dashboards.grafana.charts import (
    AGENTS,
    OF_SERVER,
    RUNS,
    SERVERS,
    Board,
    Chart,
    Line,
    exchanged,
    of_ranks,
    of_runs,
    per_step,
    waiting,
)
from d5ray.dashboards.grafana.promql import by, gauge, rate
from d5ray.metrics.exports import exported_metrics as m

EXCHANGE: Final = 'phase="exchange"'

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
        waiting(AGENTS),
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
        waiting(AGENTS),
        Chart(
            "Versions",
            "Updates of each server's parameters so far.",
            (Line(gauge("run, rank", "max", m.VERSION, SERVERS), OF_SERVER),),
            axis="updates",
        ),
    ),
)
