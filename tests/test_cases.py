"""Claims about which cases of a test run in which suite"""

from itertools import product

import pytest

from tests.cases import MOST, MOST_FULL, WEEK, WEEKS, is_due, some

pytest_plugins = ["pytester"]


def cases(*sizes: int) -> list[tuple[str, dict[str, int]]]:
    """All combinations of that many values of each parameter."""
    return [
        (f"test[{values}]", {f"p{axis}": value for axis, value in enumerate(values)})
        for values in product(*map(range, sizes))
    ]


@pytest.mark.parametrize("sizes", [(1,), (MOST,), (3, 2), (2, 2, 2), (MOST - 1, MOST)])
@pytest.mark.every_case
def test_each_value_stands_in_one_of_them(sizes: tuple[int, ...]) -> None:
    named = dict(cases(*sizes))
    kept = [named[name] for name in some(cases(*sizes))]
    assert len(kept) <= MOST
    for axis, size in enumerate(sizes):
        assert {case[f"p{axis}"] for case in kept} == set(range(size))


def test_they_are_bounded_and_the_same_whatever_the_order() -> None:
    many = cases(40, 9)
    assert len(some(many)) == MOST
    assert some(many) == some(reversed(many))


def test_what_is_left_is_full_or_slow_by_the_week(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pytest selects them: each case in one suite, and all of them where all are asked for."""
    pytester.makeconftest(
        "import pytest\n"
        "from tests.cases import share_out\n"
        "@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_collection_modifyitems(items):\n"
        "    share_out(items)\n"
    )
    pytester.makeini("[pytest]\nmarkers =\n    full\n    slow\n    every_case\n")
    pytester.makepyfile(
        "import pytest\n"
        "@pytest.mark.parametrize('case', range(30))\n"
        "def test_many(case): pass\n"
        "@pytest.mark.every_case\n"
        "@pytest.mark.parametrize('case', range(30))\n"
        "def test_all(case): pass\n"
        f"@pytest.mark.parametrize('case', [*range({MOST}), pytest.param(8, marks=pytest.mark.slow)])\n"
        "def test_few(case): pass\n"
        "@pytest.mark.full\n"
        f"@pytest.mark.parametrize('case', range({MOST_FULL + 50}))\n"
        "def test_long(case): pass\n"
        "def test_one(): pass\n"
    )
    pytester.inline_run("-m", "not full and not slow").assertoutcome(passed=MOST + 30 + MOST + 1)
    weeks = []
    for week in ("2026-W48", "2026-W49"):
        monkeypatch.setenv(WEEK, week)
        run = pytester.inline_run("-m", "full and not slow")
        run.assertoutcome(passed=30 - MOST + MOST_FULL)
        weeks.append({report.nodeid for report in run.listoutcomes()[0]})
        pytester.inline_run("-m", "slow").assertoutcome(passed=1 + 50)
    assert weeks[0] != weeks[1]


def test_what_is_dear_runs_every_fourth_week(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of it in each of four weeks."""
    names = [f"tests/actors/test_some.py::test_{number}" for number in range(100)]
    due: list[str] = []
    for week in range(45, 45 + WEEKS):
        monkeypatch.setenv(WEEK, f"2026-W{week}")
        due += [name for name in names if is_due(name)]
    assert sorted(due) == sorted(names)
    assert 10 < len([name for name in names if is_due(name)]) < 40
