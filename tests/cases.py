"""Which cases of a test with many run in which suite

`make test` runs some, chosen so that every value of every parameter occurs, and of `QUICK` tests all;
`make test-full` others, drawn anew every week; `make test-slow` the rest.
"""

import hashlib
import os
import random
import zlib
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime

import pytest

MOST = 4  # cases of a test in `make test`
MOST_FULL = 100  # in `make test-full`
DEAR = (  # seconds a test: a Ray, a browser or other tests to start, a whole network to compile
    "tests/actors/", "tests/archive/", "tests/commands/", "tests/dashboards/page/", "tests/docs/",
    "tests/frameworks/test_jax_executor.py", "tests/frameworks/test_keras_executor.py", "tests/gpu/",
    "tests/kits/laboratory/", "tests/kits/parallel/on_ray/", "tests/kits/test_without_kits.py",
    "tests/recipes/", "tests/test_same_as_keras.py",
)  # fmt: skip
QUICK = (  # milliseconds a case: all of them run, since each row of a table is a claim of its own
    "tests/archive/test_archive.py", "tests/distributed/compression/", "tests/distributed/faults/",
    "tests/distributed/optimizers/test_compressed_sgd.py", "tests/distributed/optimizers/test_optimizers.py",
    "tests/distributed/optimizers/test_server_optimizers.py", "tests/distributed/simulation/",
    "tests/distributed/topologies/", "tests/docs/test_from_deep500.py",
    "tests/frameworks/test_given_optimizers.py", "tests/frameworks/test_graph_executor_errors.py",
    "tests/identity/", "tests/kits/laboratory/test_bench_plan.py", "tests/kits/laboratory/test_tune.py",
    "tests/kits/parallel/test_splitting_rules.py", "tests/metrics/exports/test_exported_metrics.py",
    "tests/metrics/judge/", "tests/metrics/queries/test_read_only.py", "tests/networks/layers/",
    "tests/networks/test_network.py", "tests/networks/zoo/", "tests/ops/test_arrays_guarded.py",
    "tests/ops/test_costs.py", "tests/ops/test_edges.py", "tests/ops/test_torch_own.py",
    "tests/test_events.py", "tests/test_names.py", "tests/training/datasets/", "tests/training/events/",
    "tests/training/optimizers/test_every_rule.py", "tests/training/optimizers/test_optimizer_rules.py",
    "tests/training/samplers/", "tests/training/test_schedules.py", "tests/training/test_transformations.py",
)  # fmt: skip
WEEKS = 4  # after which each of these has run
WEEK = "D5RAY_TEST_WEEK"  # a variable by which an earlier week's draw comes again


def week() -> str:
    """The week whose draw is tested, such as 2026-W48."""
    return os.environ.get(WEEK) or datetime.now(UTC).strftime("%G-W%V")


def of_this_week(what: str) -> random.Random:
    """The generator of this week's draw of something, such as the wrong inputs that are tried."""
    return random.Random(f"{what} {week()}")


def share_out(items: Iterable[pytest.Item]) -> None:
    """Mark as `full` or `slow` the cases of a test beyond those of `make test`; `every_case` keeps them all.

    Of a test that is `full` as a whole, the cases beyond this week's are marked `slow`; of the dear ones that
    are `full`, those of every fourth week.
    """
    items = list(items)
    tests: dict[str, list[pytest.Function]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and not _chosen(item):
            tests[item.nodeid.partition("[")[0]].append(item)
    for name, cases in tests.items():
        kept = some([(case.nodeid, case.callspec.indices) for case in cases])
        left = [case for case in cases if case.get_closest_marker("full") or case.nodeid not in kept]
        full = set(of_this_week(name).sample(sorted(case.nodeid for case in left), min(len(left), MOST_FULL)))
        for case in left:
            case.add_marker("full" if case.nodeid in full else "slow")
    for item in items:
        if item.nodeid.startswith(DEAR) and item.get_closest_marker("full") and not is_due(item.nodeid):
            item.add_marker("slow")


def is_due(name: str) -> bool:
    """Whether a test runs in this week, which it does in every fourth."""
    return (zlib.crc32(name.encode()) + int(week()[-2:])) % WEEKS == 0


def some(cases: Iterable[tuple[str, dict[str, int]]]) -> set[str]:
    """The names of at most `MOST` cases, given by name and by which value of each parameter they have.

    The next is always one with the most values that none before it has. Among those the order looks random
    and is always the same, so that values meet each other: not all of them the first of another.
    """
    shuffled = sorted(cases, key=lambda case: hashlib.sha256(case[0].encode()).digest())
    kept: set[str] = set()
    seen: set[tuple[str, int]] = set()
    while len(kept) < MOST:
        name, values = max(shuffled, key=lambda case: len(case[1].items() - seen), default=("", {}))
        if seen.issuperset(values.items()):
            break
        kept.add(name)
        seen.update(values.items())
    return kept


def _chosen(item: pytest.Item) -> bool:
    if item.nodeid.startswith(QUICK):
        return True
    return any(item.get_closest_marker(mark) for mark in ("every_case", "slow"))
