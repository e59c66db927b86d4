"""Charts and dashboards of Grafana as data; and the charts that several dashboards have"""

from dataclasses import dataclass
from typing import Final

from d5ray.dashboards.grafana.promql import by, gauge, rate
from d5ray.metrics.exports import exported_metrics as m

RUNS: Final = 'run=~"$run",recipe=~"$recipe"'
AGENTS: Final = f'{RUNS},rank=~"$rank"'
AGENT: Final = 'run="$run",rank="$rank",role="agent"'
SERVERS: Final = f'{RUNS},role="server"'
AGGREGATOR: Final = f'{RUNS},role="aggregator"'
OF_RUN: Final = "{{run}}"
OF_RANK: Final = "rank {{rank}} · {{run}}"
OF_SERVER: Final = "server {{rank}} · {{run}}"
RANKS: Final = tuple(rf"(rank|server) \d*{digit}\b" for digit in range(10))
PHASES: Final = ("data", "forward", "backward", "exchange", "update", "record")


@dataclass(frozen=True)
class Line:
    """A query, and what its series are called: Grafana puts labels into {{…}}."""

    query: str
    legend: str


@dataclass(frozen=True)
class Chart:
    """One panel of a dashboard of Grafana.

    axis         what stands at the axis, with the unit in words; unit: Grafana's name of it
    names        patterns of the series' names, in the order of their colours
    number       it shows the last value alone
    width        of 24 columns
    """

    title: str
    description: str
    lines: tuple[Line, ...]
    axis: str
    unit: str = "short"
    names: tuple[str, ...] = RANKS
    stacked: bool = False
    number: bool = False
    lowest: float | None = 0.0
    highest: float | None = None
    width: int = 12


@dataclass(frozen=True)
class Board:
    """One dashboard. variables: what one chooses above it; single: one value of each of them."""

    uid: str
    title: str
    description: str
    variables: tuple[str, ...]
    charts: tuple[Chart, ...]
    single: bool = False


def per_step(labels: str, metric: m.ExportedMetric, where: str, *, only: str = "") -> str:
    """A counter's growth for each step, by labels that steps have; only: a selection of the counter alone."""
    counted = f"{where},{only}" if only else where
    return f"{rate(labels, metric, counted)} / {rate(labels, m.STEPS, where)}"


def phases(where: str) -> Chart:
    """A chart of the phases of a step."""
    of_phases = rate("run, phase", m.PHASE_SECONDS, where)
    share = f"{of_phases} / on (run) group_left {rate('run', m.STEPS, where)}"
    return Chart(
        "Parts of a step",
        "Where the time of a step goes, mean over the agents: fetching the batch, forwards, backwards, "
        "exchange with others (waiting included), update, and measuring itself.",
        (Line(share, "{{phase}} · {{run}}"),),
        axis="seconds a step",
        unit="s",
        names=PHASES,
        stacked=True,
    )


def exchanged(where: str) -> Chart:
    """A chart of the bytes in both directions."""
    return Chart(
        "Bytes exchanged",
        "What training steps sent and received.",
        (
            Line(rate("run", m.SENT_BYTES, where), "sent · {{run}}"),
            Line(rate("run", m.RECEIVED_BYTES, where), "received · {{run}}"),
        ),
        axis="bytes a second",
        unit="Bps",
        names=("sent", "received"),
    )


def loss(title: str, where: str) -> Chart:
    """A chart of the loss of training and test."""
    return of_ranks(
        title,
        "Of the latest training batch of each agent. A gap is a loss that is no number.",
        gauge("run, rank", "max", m.LOSS, where),
        "loss (1)",
        lowest=None,
    )


def accuracy(where: str) -> Chart:
    """A chart of the accuracy at each evaluation."""
    return of_ranks(
        "Test accuracy",
        "Share of the test set that is classified correctly, at the latest evaluation.",
        gauge("run, rank", "max", m.ACCURACY, where),
        "share of the test set",
        "percentunit",
        highest=1.0,
    )


def waiting(where: str) -> Chart:
    """A chart of the times that agents wait, by what they wait for."""
    return Chart(
        "Waiting",
        "The share of the time that an agent waits for others, mean over the agents: at the servers, at "
        "windows for averages, for letters.",
        (Line(by("run, at", "avg", rate("run, rank, at", m.WAIT_SECONDS, where)), "{{at}} · {{run}}"),),
        axis="share of the time",
        unit="percentunit",
        names=("servers", "windows", "letters"),
    )


def own(where: str) -> Chart:
    """A chart of the metrics that the user's code records."""
    return Chart(
        "Your own metrics",
        "What events of your own recorded last, by moment.record.",
        (Line(gauge("run, rank, metric", "max", m.OWN, where), "rank {{rank}} {{metric}} · {{run}}"),),
        axis="value, in the metric's unit",
        lowest=None,
    )


def of_ranks(
    title: str, description: str, query: str, axis: str, unit: str = "short", **more: float | None
) -> Chart:
    """A chart with one line for each agent."""
    return Chart(title, description, (Line(query, OF_RANK),), axis=axis, unit=unit, **more)  # type: ignore[arg-type]


def of_runs(title: str, description: str, query: str, axis: str, unit: str = "short") -> Chart:
    """A chart with one line for each run."""
    return Chart(title, description, (Line(query, OF_RUN),), axis=axis, unit=unit, names=())


def figure(title: str, description: str, query: str, axis: str, width: int = 4) -> Chart:
    """A number for each run."""
    return Chart(title, description, (Line(query, OF_RUN),), axis=axis, number=True, names=(), width=width)
