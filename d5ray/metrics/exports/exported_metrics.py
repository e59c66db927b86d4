"""Metrics of a run that Ray exports: the one list of names, kinds and units, and of the rows behind them"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, final

TAGS: Final = ("run", "recipe", "role", "rank")
AGENT, SERVER, AGGREGATOR, COORDINATOR, EXECUTOR = ROLES = (
    "agent", "server", "aggregator", "coordinator", "executor",
)  # fmt: skip
COUNTER, GAUGE = "counter", "gauge"
SUM, COUNT, LAST, MEAN, MOST, RATE = "sum", "count", "last", "mean", "most", "rate"
NO_NUMBER = "no number"


@final
@dataclass(frozen=True, eq=False)
class ExportedMetric:
    """One metric as Ray shows it.

    kind         counter or gauge; a gauge is what it was when it was last looked at
    unit         as in the table `metrics`: s, B, 1, 1/s
    roles        the actors that show it
    label        a tag besides `TAGS`
    rows         the recorded metrics that it is made of, each with the value of the label
    by           how the rows since the last look become one number; RATE: their sum over that of step_time;
                 NO_NUMBER: 1 where the last one is not finite. Ray drops a value that is not
    """

    name: str
    kind: str
    unit: str
    description: str
    roles: tuple[str, ...] = (AGENT,)
    label: str = ""
    rows: Mapping[str, str] = field(default_factory=dict)
    by: str = LAST

    @property
    def registered(self) -> str:
        """The name that Ray is told."""
        return f"d5ray_{self.name}"

    @property
    def exposed(self) -> str:
        """The name that Prometheus sees."""
        return f"ray_{self.registered}" + ("_total" if self.kind == COUNTER else "")

    @property
    def tags(self) -> tuple[str, ...]:
        """The names of the metric's tags in Ray: `TAGS`, and its own label where it has one."""
        return (*TAGS, self.label) if self.label else TAGS


def _sum(name: str, unit: str, description: str, *, label: str = "", **rows: str) -> ExportedMetric:
    return ExportedMetric(name, COUNTER, unit, description, label=label, rows=rows, by=SUM)


def _gauge(name: str, unit: str, by: str, description: str, row: str = "") -> ExportedMetric:
    return ExportedMetric(name, GAUGE, unit, description, rows={row or name: ""}, by=by)


# -- agents ----------------------------------------------------------------------------------------------

TRAINING = ExportedMetric("training", GAUGE, "1", "1 while the agent trains, 0 otherwise")
STEPS = ExportedMetric("steps", COUNTER, "1", "training steps", rows={"step_time": ""}, by=COUNT)
SAMPLES = _sum("samples", "1", "training samples", samples="")
STEP_SECONDS = _sum("step_seconds", "s", "time of training steps", step_time="")
PHASE_SECONDS = _sum(
    "phase_seconds", "s", "time of the parts of training steps", label="phase",
    data_time="data", forward_time="forward", backward_time="backward", exchange_time="exchange",
    update_time="update", record_time="record",
)  # fmt: skip
PREDICTED_SECONDS = _sum(
    "predicted_exchange_seconds", "s", "time of exchange as latency and bandwidth predict it",
    predicted_exchange_time="",
)  # fmt: skip
SENT_BYTES = _sum("sent_bytes", "B", "bytes that training steps sent", bytes_sent="")
RECEIVED_BYTES = _sum("received_bytes", "B", "bytes that training steps received", bytes_received="")
SENT_MESSAGES = _sum("sent_messages", "1", "messages that training steps sent", messages_sent="")
STEP_TIME = _gauge("step_time", "s", MEAN, "mean time of the latest training steps")
SAMPLES_PER_SECOND = _gauge(
    "samples_per_second", "1/s", RATE, "training samples a second in the latest steps", "samples"
)
LOSS = _gauge("loss", "1", LAST, "loss of the latest training batch")
LOSS_IS_NO_NUMBER = _gauge(
    "loss_is_no_number", "1", NO_NUMBER, "1 where the loss of the latest batch is NaN or infinite", "loss"
)
TEST_LOSS = _gauge("test_loss", "1", LAST, "mean loss over the test set at the latest evaluation")
ACCURACY = _gauge("accuracy", "1", LAST, "share of the test set classified correctly", "test_accuracy")
STALENESS = _gauge("staleness", "1", MEAN, "updates that the agent of a pushed gradient had not seen")
CLOCK_GAP = _gauge("clock_gap", "1", MOST, "pushes by which the agent is ahead of the slowest")
SERVER_QUEUE = _gauge("server_queue", "1", MEAN, "requests that waited at a server when another came")
WAIT_SECONDS = _sum(
    "wait_seconds", "s", "time that an agent waited, not for its own work", label="at",
    server_wait_time="servers", window_wait_time="windows", letter_wait_time="letters",
)  # fmt: skip
PUSHES = _sum("pushes", "1", "vectors pushed to the servers", pushes="")
PULLS = _sum("pulls", "1", "times that the servers' parameters were read", pulls="")
OWN = ExportedMetric(
    "own", GAUGE, "1", "a metric that the user's own code records, in its unit", label="metric"
)

# -- servers, aggregator, the driver, executors of operators ---------------------------------------------

REQUESTS = ExportedMetric("requests", COUNTER, "1", "requests to a parameter server", (SERVER,))
BUSY_SECONDS = ExportedMetric(
    "busy_seconds", COUNTER, "s", "time that a server or the aggregator worked", (SERVER, AGGREGATOR)
)
WAITING = ExportedMetric("waiting", GAUGE, "1", "requests that wait at a parameter server", (SERVER,))
VERSION = ExportedMetric(
    "parameter_version", GAUGE, "1", "updates of a server's parameters; at an agent: when it last read them",
    (AGENT, SERVER), rows={"parameter_version": ""},
)  # fmt: skip
ROWS_RECEIVED = ExportedMetric(
    "rows_received", COUNTER, "1", "rows that reached the aggregator", (AGGREGATOR,)
)
ROWS_WRITTEN = ExportedMetric("rows_written", COUNTER, "1", "rows that the aggregator wrote", (AGGREGATOR,))
CONSENSUS_DISTANCE = ExportedMetric(
    "consensus_distance", GAUGE, "1", "distance of the agents' parameters from their mean, over its norm",
    (AGGREGATOR,),
)  # fmt: skip
AGENTS = ExportedMetric("agents", GAUGE, "1", "agents that take part in the run", (COORDINATOR,))
EPOCH = ExportedMetric("group_epoch", GAUGE, "1", "groups that the agents formed, from 0", (COORDINATOR,))
FAILURES = ExportedMetric(
    "failures", COUNTER, "1", "agents and servers that failed, by what became of them", (COORDINATOR,), "kind"
)
CALLS = ExportedMetric(
    "operator_calls", COUNTER, "1", "timed calls of operators", (EXECUTOR,), rows={"operator_time": ""},
    by=COUNT,
)  # fmt: skip
OPERATOR_TIME = ExportedMetric(
    "operator_time", GAUGE, "s", "time of the latest call of an operator", (EXECUTOR,),
    rows={"operator_time": ""},
)  # fmt: skip
FLOP_RATE = ExportedMetric(
    "flop_rate", GAUGE, "1/s", "operations a second of the latest call of an operator", (EXECUTOR,),
    rows={"flop_rate": ""},
)  # fmt: skip

EXPORTED: Final = (
    TRAINING, STEPS, SAMPLES, STEP_SECONDS, PHASE_SECONDS, PREDICTED_SECONDS, SENT_BYTES, RECEIVED_BYTES,
    SENT_MESSAGES, STEP_TIME, SAMPLES_PER_SECOND, LOSS, LOSS_IS_NO_NUMBER, TEST_LOSS, ACCURACY, STALENESS,
    CLOCK_GAP, SERVER_QUEUE, WAIT_SECONDS, PUSHES, PULLS, OWN, REQUESTS, BUSY_SECONDS, WAITING, VERSION,
    ROWS_RECEIVED, ROWS_WRITTEN, CONSENSUS_DISTANCE, AGENTS, EPOCH, FAILURES, CALLS, OPERATOR_TIME, FLOP_RATE,
)  # fmt: skip
