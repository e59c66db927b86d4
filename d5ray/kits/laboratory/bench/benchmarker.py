"""A run of `d5ray bench` in the schema of benchmarker: a document for each problem and contender

A call is a batch and an epoch: all three times are the median of a call, of the medians of fresh processes,
and so is `time`. `shape_x_train` is the shape of the first input.
"""

import json
from typing import Any, Final

from d5ray.kits.laboratory.metrics.operator_calls import measured, timed_by
from d5ray.kits.laboratory.metrics.side_by_side import time_of
from d5ray.metrics.exports.benchmarker_schema import FRAMEWORKS, platform_of, surroundings
from d5ray.metrics.record.reader import Run

BITS: Final = {"float16": "FP16", "bfloat16": "BF16", "float32": "FP32", "float64": "FP64"}


def operators_benchmarked(run: Run) -> dict[str, dict[str, Any]]:
    """The documents by a name that files can have; path_out is null. None where no problems were measured."""
    row, job = run.row, json.loads(run.row["experiment"] or "{}")
    if "problems" not in job:
        return {}
    tables = run.tables()
    platform = platform_of(tables["environment"], row["host"])
    metric, dtype = timed_by(job), job.get("dtype")
    gpus = [0] if job["device"] == "cuda" else []
    found = {}
    for scope in measured(tables, metric):
        framework, _, name = scope.partition(" ")
        known = job["problems"][name]
        seconds = time_of(tables, metric, scope).known
        theirs, version = FRAMEWORKS.get(framework, framework), platform.get(f"{framework}_version")
        gflop = known["flops"] / 1e9 or None  # where they are known
        found[_file_name(scope)] = {
            "framework": theirs,
            "framework_full": f"{theirs}-{version}" if version else theirs,
            "problem": {
                "name": name,
                "sample_shape": known["sample"],
                "cnt_samples": known["batch"],
                "cnt_batches_per_epoch": 1,
                "numerics": dtype,
                "precision": BITS.get(str(dtype), dtype),
                "gflop_estimated": gflop,
                "gflop_measured": None,
            },
            "mode": job.get("mode"),
            "batch_size": known["batch"],
            "batch_size_per_device": known["batch"],
            "nb_epoch": 1,
            **surroundings(row, platform, gpus),
            "time_total": seconds,
            "time_epoch": seconds,
            "time_batch": seconds,
            "time_sample": seconds / known["batch"],
            "samples_per_second": known["batch"] / seconds,
            "gflop_per_second": gflop / seconds if gflop else None,
            "shape_x_train": known["inputs"][0],
            "time": seconds,
        }
    return found


def _file_name(scope: str) -> str:
    """`torch_gemm_1760x16x1760_NN`.

    >>> _file_name("torch conv 1×3×8×8 → 4, 3×3/1 pad 1")
    'torch_conv_1x3x8x8_to_4_3x3_1_pad_1'
    """
    text = scope.replace("×", "x").replace("→", "to").replace("/", "_").replace(",", " ")
    return "_".join(text.split())
