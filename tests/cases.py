"""Which cases of a test with many `make test` runs: some, in which each value of each parameter stands"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable

import pytest

MOST = 8  # cases of a test


def leave_to_full(items: Iterable[pytest.Item]) -> None:
    """Mark as `full` the cases of a test that `make test` need not run; `every_case` keeps them all."""
    tests: dict[str, list[pytest.Function]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and not _chosen(item):
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        kept = some([(case.nodeid, case.callspec.indices) for case in cases])
        for case in cases:
            if case.nodeid not in kept:
                case.add_marker("full")


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
    return any(item.get_closest_marker(mark) for mark in ("every_case", "full", "slow"))
