"""The laboratory: comparisons, repetitions, scaling, checks, tuning, and measuring one's own parts"""

from typing import Final

_HERE: Final = "d5ray.kits.laboratory"
_CALLS: Final = f"{_HERE}.metrics.operator_calls"

BRINGS: Final[dict[str, dict[str, str]]] = {
    "modules of metrics": {"laboratory": f"{_HERE}.metrics"},  # and those in them
    "commands": {  # by their modules
        name: f"{_HERE}.commands.{name}" for name in ("compare", "check", "rerun", "tune", "bench")
    },
    "sections of a report": {
        "scaling": f"{_HERE}.tables.scaling:section",
        "benches": f"{_HERE}.tables.in_reports:of_benches",
        "contenders": f"{_HERE}.tables.in_reports:of_contenders",
    },
    "communication in a report": {"by size": f"{_HERE}.tables.by_size:blocks_of"},
    "several seeds": {"one after the other": f"{_HERE}.repeats.seeds:run"},
    "tables of a run": {"contenders": f"{_HERE}.tables.operator_tables:tables_of"},
    "tables of criteria": {"contenders": f"{_HERE}.tables.contenders:about_contenders"},
    "metrics of contenders": {
        "operator_time": f"{_CALLS}:OperatorTime",
        "network_time": f"{_CALLS}:NetworkTime",
        "loading_time": f"{_CALLS}:LoadingTime",
        "allreduce_time": f"{_CALLS}:allreduce_time",
    },
    "several values of a run": {"operator_time": f"{_CALLS}:times_of_operators"},
    "documents of benchmarker": {"operators": f"{_HERE}.bench.benchmarker:operators_benchmarked"},
    "modules of before": {  # packages and modules, for one release
        "d5ray.recipes.engine.comparisons.comparison_job": f"{_HERE}.comparisons.side_by_side",
        "d5ray.recipes.jobs": f"{_HERE}.jobs",
        **{
            f"d5ray.recipes.engine.{name}": f"{_HERE}.{name}"
            for name in ("bench", "checking", "comparisons", "repeats", "tuning")
        },
        **{
            f"d5ray.metrics.definitions.{name}": f"{_HERE}.metrics.{name}"
            for name in (
                "exchanges", "operator_calls", "rates", "scaling", "side_by_side", "simulations", "trainings",
            )
        },
        "d5ray.metrics.judge.performance_profiles": f"{_HERE}.metrics.performance_profiles",
        "d5ray.ops.deepbench.problems": f"{_HERE}.bench.deepbench",
        "d5ray.actors.tuning": f"{_HERE}.tuning",
    },
}  # fmt: skip
