"""Claims about which cases `make test` runs"""

from itertools import product

import pytest

from tests.cases import MOST, some

pytest_plugins = ["pytester"]


def cases(*sizes: int) -> list[tuple[str, dict[str, int]]]:
    """All combinations of that many values of each parameter."""
    return [
        (f"test[{values}]", {f"p{axis}": value for axis, value in enumerate(values)})
        for values in product(*map(range, sizes))
    ]


@pytest.mark.parametrize("sizes", [(1,), (MOST,), (3, 2), (2, 2, 2), (7, MOST)])
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


def test_what_is_left_is_full_but_where_all_are_asked_for(pytester: pytest.Pytester) -> None:
    """As pytest selects them."""
    pytester.makeconftest(
        "import pytest\n"
        "from tests.cases import leave_to_full\n"
        "@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_collection_modifyitems(items):\n"
        "    leave_to_full(items)\n"
    )
    pytester.makeini("[pytest]\nmarkers =\n    full\n    slow\n    every_case\n")
    pytester.makepyfile(
        "import pytest\n"
        "@pytest.mark.parametrize('case', range(30))\n"
        "def test_many(case): pass\n"
        "@pytest.mark.every_case\n"
        "@pytest.mark.parametrize('case', range(30))\n"
        "def test_all(case): pass\n"
        "@pytest.mark.parametrize('case', [*range(8), pytest.param(8, marks=pytest.mark.slow)])\n"
        "def test_few(case): pass\n"
        "def test_one(): pass\n"
    )
    pytester.inline_run("-m", "not full and not slow").assertoutcome(passed=MOST + 30 + 8 + 1)
    pytester.inline_run("-m", "full").assertoutcome(passed=30 - MOST)
    pytester.inline_run("-m", "slow").assertoutcome(passed=1)
