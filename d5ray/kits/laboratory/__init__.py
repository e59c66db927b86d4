"""The laboratory: comparisons, repetitions, scaling, chaos, checks, tuning, and measuring one's own parts"""

from typing import Final

_HERE: Final = "d5ray.metrics.definitions"
_CALLS: Final = f"{_HERE}.operator_calls"

BRINGS: Final[dict[str, dict[str, str]]] = {
    "commands": {  # by their modules
        name: f"d5ray.cli.{name}" for name in ("compare", "check", "rerun", "tune", "bench")
    },
    "several seeds": {"one after the other": "d5ray.recipes.engine.repeats.seeds:run"},
    "tables of a run": {"contenders": "d5ray.dashboards.terminal.operator_tables:tables_of"},
    "tables of criteria": {"contenders": "d5ray.dashboards.terminal.contenders:about_contenders"},
    "metrics of contenders": {
        "operator_time": f"{_CALLS}:OperatorTime",
        "network_time": f"{_CALLS}:NetworkTime",
        "loading_time": f"{_CALLS}:LoadingTime",
        "allreduce_time": f"{_CALLS}:allreduce_time",
    },
    "several values of a run": {"operator_time": f"{_CALLS}:times_of_operators"},
}
