"""Claims about the tables of measured operators"""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from d5ray.kits.laboratory.metrics.operator_calls import (
    OF_OPERATORS,
    OPERATOR_TIME,
    PEAK_BYTE_RATE,
    PEAK_FLOP_RATE,
)
from d5ray.kits.laboratory.tables.operator_tables import above, duration, measured, share_of_peak, show
from d5ray.metrics.record.reader import Run
from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.record.schema import table_of
from d5ray.metrics.record.store import RunWriter

CACHE = 4 * 2**20
FLOPS, MOVED = 1e11, 1e10  # a second
PROBLEMS = {  # name: group, operations, bytes, and the share of the peak that they are measured at
    "small": ("gemm", 1_000, 1_000_000, 2.37),
    "large": ("gemm", 1_000, 100_000_000, 1.5),
    "square": ("gemm", 10**9, 1_000_000, 1.02),
    "winograd": ("conv", 10**9, 1_000_000, 1.8),
    "slow": ("conv", 10**9, 1_000_000, 0.5),
}


def kept(root: Path, cache: str = str(CACHE), device: str = "cpu") -> Run:
    """A run that measured these problems at these peaks, on a machine whose largest cache is this one."""
    writer, sent = RunWriter(root, "r"), list[pa.RecordBatch]()
    job = {
        "suite": "s", "mode": "inference", "dtype": "float32", "device": device, "threads": 1,
        "frameworks": ["torch"],
        "problems": {name: {"group": g, "flops": f, "bytes": b} for name, (g, f, b, _) in PROBLEMS.items()},
    }  # fmt: skip
    writer.open({"seed": 1, "recipe": "bench_operators", "agents": 1, "experiment": json.dumps(job)})
    fact = {"run_id": "r", "node": "n", "key": "cache_bytes", "value": cache}
    writer.write_table("environment", table_of("environment", [fact]))
    recorder = Recorder(run_id="r", agent="a", rank=0, node="n", send=sent.append)
    for metric, kind in OF_OPERATORS.items():
        recorder.declare(metric, kind.unit)
    rows = [(PEAK_FLOP_RATE, FLOPS, "torch"), (PEAK_BYTE_RATE, MOVED, "torch")]
    for name, (_, flops, moved, share) in PROBLEMS.items():
        rows.append((OPERATOR_TIME, max(flops / FLOPS, moved / MOVED) / share, f"torch {name}"))
    for metric, value, scope in rows:
        recorder.record(metric, value, step=0, scope=scope, level=0, rep=0)
    recorder.flush()
    for batch in sent:
        writer.append(batch)
    writer.update_run(status="completed")
    writer.close()
    return Run(writer.folder)


def test_a_share_above_100_percent_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In its line, and in full below the table; a share up to 100 % says nothing."""
    show(kept(tmp_path))
    told = capsys.readouterr().out
    lines = {line.split()[0]: line for line in told.splitlines() if line.split()[:1]}
    reasons = {
        "small": "in cache", "large": "beyond the peak", "square": "beyond the peak", "winograd": "fewer FLOP"
    }  # fmt: skip
    for name, reason in reasons.items():
        share = PROBLEMS[name][3]
        assert f"{share:.0%} of {'B/s' if share in (2.37, 1.5) else 'FLOP/s'}, {reason}" in lines[name]
        assert f"above 100 %, {reason}: " in told
    assert lines["slow"].rstrip(" │|").endswith("50% of FLOP/s")
    assert "the operands fit in a cache of 4.19 MB" in told


@pytest.mark.parametrize(("cache", "device"), [("unavailable: none", "cpu"), (str(CACHE), "cuda")])
def test_nothing_is_said_of_a_cache_that_is_not_known(tmp_path: Path, cache: str, device: str) -> None:
    """The processor's tells nothing of a GPU's; the share has a reason all the same."""
    found = {each.problem: each.above for each in measured(kept(tmp_path, cache, device))}
    assert found["small"] == "beyond the peak"
    assert found["slow"] == ""


@pytest.mark.parametrize(
    ("known", "seconds", "expected"),
    [
        ({"group": "x", "flops": 0, "bytes": 10**6}, 2e-4, (0.5, "B/s", "")),
        ({"group": "x", "flops": 0, "bytes": 10**6}, 1e-5, (10.0, "B/s", "in cache")),
        ({"group": "x", "flops": 0, "bytes": 10**6}, 5e-7, (200.0, "B/s", "not shown")),  # it gives a view
        ({"group": "x", "flops": 0, "bytes": 10**8}, 5e-3, (2.0, "B/s", "beyond the peak")),
        ({"group": "x", "flops": 0, "bytes": 10**8}, 1e-3, (10.0, "B/s", "not shown")),
        (
            {"group": "x", "flops": 10**12, "bytes": 10**6},
            1e-3,
            (1e4, "FLOP/s", "not shown"),
        ),  # a wrong --flops
        ({"group": "conv", "flops": 10**9, "bytes": 10**6}, 5e-3, (2.0, "FLOP/s", "fewer FLOP")),
    ],
)
def test_a_share_that_nothing_explains_is_not_given(
    known: dict[str, object], seconds: float, expected: tuple[float, str, str]
) -> None:
    """With peaks of 100 GFLOP/s and 10 GB/s, and a cache of 4 MiB."""
    share, bound = share_of_peak(known, 1e11, 1e10, seconds)
    assert share == pytest.approx(expected[0])
    assert (bound, above(share, bound, known, 1 << 22)) == expected[1:]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.5, "2.50 s"), (0.0123, "12.3 ms"), (4.5678e-5, "45.7 µs"), (5e-10, "0.500 ns"), (123.4, "123 s")],
)
def test_durations_have_three_digits_in_a_unit_that_suits_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text
