"""Common parts of the documents for benchmarker: keys, names of frameworks, the platform"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

POWER = ("joules_CPU", "joules_RAM", "joules_GPU", "joules_total",
         "avg_watt_CPU", "avg_watt_RAM", "avg_watt_GPU", "avg_watt_total")  # fmt: skip
PER_JOULE = tuple(
    f"{what}_per_joule{which}" for what in ("gflop", "samples") for which in ("", "_CPU", "_GPU", "_device")
)
FRAMEWORKS = {
    "torch": "pytorch", "tensorflow": "tensorflow", "numpy": "numpy", "cupy": "cupy", "jax": "jax",
}  # fmt: skip


def platform_of(environment: pa.Table, host: str) -> dict[str, str | None]:
    """The driver's node as a platform; null for facts that could not be known."""
    facts = [fact for fact in environment.to_pylist() if fact["node"] == host]
    return {fact["key"]: None if fact["value"].startswith("unavailable") else fact["value"] for fact in facts}


def surroundings(row: Mapping[str, Any], platform: dict[str, str | None], gpus: list[int]) -> dict[str, Any]:
    """When and on what the run of this row measured, and null for what no run of d5ray's measures."""
    return {
        "nb_gpus": len(gpus),
        "gpus": gpus,
        "device": platform.get("gpus") if gpus else platform.get("cpu_model"),
        "platform": platform,
        "power": {"sampling_ms": None, **dict.fromkeys(POWER)},
        **dict.fromkeys(PER_JOULE),
        "start_time": row["started"].isoformat() if row["started"] is not None else None,
        "path_out": None,
        "hostname": row["host"],
        "linux": platform.get("os"),
    }


def full_name(framework: str | None, platform: dict[str, str | None]) -> str | None:
    """The name of a framework with its version, such as `pytorch-2.13.0`."""
    packages = {name: part for part, name in FRAMEWORKS.items()}
    version = platform.get(f"package_{packages.get(framework or '', '')}")
    return f"{framework}-{version}" if framework and version else framework
