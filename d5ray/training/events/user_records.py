"""Records of users' events: names that d5ray does not measure itself, and numbers"""

import json
from typing import Any, Final

from d5ray.checks import check_count, check_text, shown
from d5ray.errors import ConfigurationError
from d5ray.metrics.definitions.catalogue import CATALOGUE
from d5ray.names.kits import brought
from d5ray.networks.events.operator_times import METRIC as OPERATOR_TIME

LONGEST: Final = 200  # characters of a name
# Events of the user's own may record these, for the metrics that read them.
RECORDED_BY_EVENTS: Final = frozenset({"inference_time", *brought("events that record")})
MEASURED: Final = CATALOGUE.keys() - RECORDED_BY_EVENTS | {
    "agents", "global_batch", "rate_factor", OPERATOR_TIME,
}  # fmt: skip
# From which tables, verdicts and replays tell what happened.
NOTED: Final = frozenset({
    "agent_did_not_come", "agent_died", "agent_died_at_end", "agent_heard", "agent_joined",
    "agent_left", "agent_restarted", "agent_silent", "agent_stuck", "agent_waits", "agents_changed",
    "aggregator_died", "aggregator_restored", "agreed", "average", "checkpoint", "collect",
    "connection_lost", "device", "died", "failed", "fault", "fault_missed", "held", "joined", "linger",
    "links", "load", "model_changed", "model_not_kept", "nan_loss", "parameters", "paused", "peer_lost",
    "post", "probe", "pull", "push", "read", "resumed", "server_died", "server_died_at_end",
    "server_restored", "stopped", "train", "waiting",
})  # fmt: skip


def check_metric(name: object, said: str = "the metric") -> None:
    """Raise `ConfigurationError` for what cannot be the name of a metric of the user's own."""
    _check_name(said, name)
    if name in MEASURED:
        raise ConfigurationError(
            f"{said} is {name!r}, which d5ray measures itself, so that verdicts would be on your values: "
            f"choose another name, such as 'my_{name}'"
        )


def check_record(metric: object, unit: object, phase: object, step: object) -> None:
    """Raise `ConfigurationError` unless these can stand in a row of a user's event."""
    check_metric(metric)
    for name, value in (("unit", unit), ("phase", phase)):
        _check_name(f"the {name} of the metric {metric!r}", value)
    check_count(f"the step of the metric {metric!r}", step, 0)


def number(metric: str, value: Any) -> float | None:
    """The value as a number, now: an array in which it lies may change before the row is written.

    Raises `ConfigurationError` for what is none, or one that a double does not hold.
    """
    if value is None:
        return None
    wanted = f"the value of the metric {metric!r} is {shown(value)}: it must be one number, or None"
    if tuple(getattr(value, "shape", ())):
        raise ConfigurationError(f"{wanted}; of an array take one, as by float(array.mean())")
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, (str, bytes)):
        raise ConfigurationError(wanted)
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigurationError(f"{wanted} ({error})") from error
    if isinstance(value, int) and int(found) != value:
        raise ConfigurationError(
            f"{wanted}; a double holds whole numbers to 2**53: keep larger ones as a text in moment.note"
        )
    return found


def check_note(name: object, detail: dict[str, Any]) -> None:
    """Raise `ConfigurationError` for an event that is d5ray's own, or whose details are no JSON."""
    _check_name("the event", name)
    if name in NOTED:
        raise ConfigurationError(
            f"the event is {name!r}, which d5ray notes itself: choose another name, such as 'my_{name}'"
        )
    try:
        json.dumps(detail, default=str, allow_nan=False, sort_keys=True)
    except ValueError as error:
        raise ConfigurationError(
            f"the details of the event {name!r} are no JSON ({error}): give what is not finite as a text"
        ) from error


def _check_name(said: str, name: object) -> None:
    if not isinstance(name, str) or not name.strip() or len(name) > LONGEST or not name.isprintable():
        raise ConfigurationError(
            f"{said} is {shown(name)}: it must be a text of 1 to {LONGEST} characters that can be printed"
        )
    check_text(said, name)


def kept_bytes(name: str, data: Any) -> bytes:
    """The bytes of a file. Raises `ConfigurationError` for what has none."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise ConfigurationError(
            f"the file {name!r} is {shown(data)}: it must be bytes; of a text take text.encode()"
        )
    return bytes(data)
