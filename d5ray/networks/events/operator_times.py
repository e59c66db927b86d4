"""OperatorTimes: how long each operator of a network takes, forward and backward"""

from statistics import median
from typing import TYPE_CHECKING, Any, final

from d5ray.checks import wrong_kind
from d5ray.networks.events.event import GraphEvent, NetworkMoment, OperatorMoment

if TYPE_CHECKING:
    import pyarrow as pa

METRIC = "operator_time"


@final
class OperatorTimes(GraphEvent):
    """Keeps the time of every call; `table()` has a row for each operator and direction.

    recorder: a `d5ray.metrics.record.recorder.Recorder`; every call becomes a row of `operator_time` there,
    with the pass as its step and node and direction as its scope.
    """

    def __init__(self, recorder: Any = None) -> None:
        self._recorder = recorder
        self._passes = -1
        self._taken: dict[tuple[int, str], list[int]] = {}
        self._kinds: dict[int, tuple[str, str]] = {}
        if recorder is not None:
            if not hasattr(recorder, "declare"):
                raise wrong_kind("recorder", recorder, "a Recorder, or None for none")
            recorder.declare(METRIC, "s")

    def before_network(self, moment: NetworkMoment) -> None:
        self._passes += 1

    def after_operator(self, moment: OperatorMoment) -> None:
        assert moment.elapsed_ns is not None
        node, key = moment.node, (moment.index, moment.direction)
        self._taken.setdefault(key, []).append(moment.elapsed_ns)
        self._kinds[moment.index] = (node.name or f"{node.type}_{moment.index}", node.type)
        if self._recorder is not None:
            self._recorder.record(
                METRIC,
                moment.elapsed_ns * 1e-9,
                step=self._passes,
                scope=f"{self._kinds[moment.index][0]}.{moment.direction}",
                level=1,
            )

    def table(self) -> "pa.Table":
        """Columns index, node, type, direction, calls, median_seconds, total_seconds and share (of all)."""
        import pyarrow as pa  # noqa: PLC0415 - takes a while

        whole = sum(map(sum, self._taken.values()))
        return pa.Table.from_pylist(
            [
                {
                    "index": index,
                    "node": self._kinds[index][0],
                    "type": self._kinds[index][1],
                    "direction": direction,
                    "calls": len(taken),
                    "median_seconds": median(taken) * 1e-9,
                    "total_seconds": sum(taken) * 1e-9,
                    "share": sum(taken) / whole if whole else 0.0,
                }
                for (index, direction), taken in sorted(self._taken.items(), key=_forward_first)
            ]
        )


def _forward_first(item: tuple[tuple[int, str], Any]) -> tuple[bool, int]:
    (index, direction), _ = item
    return direction == "backward", index
