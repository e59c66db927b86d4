"""Wrong words for every parameter of every command: exit code 3 and one line that names what is wrong"""

from pathlib import Path

import pytest

from tests.beside_kits import there
from tests.cases import of_this_week
from tests.wrong_inputs.command_worker import judged
from tests.wrong_inputs.commands import FINE, OF_REAL_RUNS, all_cases, commands, furnish, texts
from tests.wrong_inputs.trying import Case, tried
from tests.wrong_inputs.values import MISSING

WORKER = "command_worker"
PARTS = 2  # of all cases, so that two processes share them


@pytest.fixture
def furnished(tmp_path: Path) -> Path:
    """A folder with runs, a network, a recipe, and files that are wrong."""
    furnish(tmp_path)
    return tmp_path


def in_words(cases: list[Case], folder: Path) -> list[str]:
    """What became of these lines, where that is not right."""
    became = list(tried(cases, folder, WORKER))
    assert len(became) == len(cases)
    return [str(each) for each in became if each.what != "refused"]


@pytest.mark.full
def test_every_valid_line_is_accepted(furnished: Path) -> None:
    """So that what is refused below is refused for the one value that is wrong."""
    names = commands().keys() - OF_REAL_RUNS
    became = tried([(name, "", "nothing") for name in sorted(names)], furnished, WORKER)
    assert [str(each) for each in became if each.what != "accepted"] == []


@pytest.mark.full
@pytest.mark.timeout(600)
def test_wrong_words_of_this_week_are_refused(furnished: Path) -> None:
    assert in_words(of_this_week("wrong words").sample(all_cases(furnished), 300), furnished) == []


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("part", range(PARTS))
def test_all_wrong_words_are_refused(furnished: Path, part: int) -> None:
    """About 3,000, each in at most 5 s and 1 GiB more: no traceback, nothing left, and nothing started."""
    cases = all_cases(furnished)
    assert len(cases) >= 3000
    assert in_words(cases[part::PARTS], furnished) == []


def test_what_is_no_mistake_is_a_parameter_that_there_is() -> None:
    """The table of exceptions names commands, parameters and wrong words that exist."""
    for (name, parameter), (wrong, reason) in FINE.items():
        if name in commands() or there("laboratory"):
            assert parameter in {each.name for each in commands()[name]}
        assert wrong <= {*texts(Path()), MISSING}
        assert reason


@pytest.mark.parametrize(
    ("code", "err", "expected"),
    [
        (0, "", "accepted"),
        (1, "", "accepted"),
        (3, "error: FOLDER/locked/runs cannot be written", "accepted"),
        (3, "error: Traceback (most recent call last)", "traceback"),
        (3, "error: KeyError: 1; the traceback is in FILE", "traceback"),
        (3, "error: --rows is 'nonsense':\n a number", "not one line that can be read"),
        (3, f"error: --rows is {'x' * 9999}", "not one line that can be read"),
        (3, "rows is 'nonsense'", "not one line that can be read"),
        (3, "error: something is wrong", "not named"),
        (-9, "", "exit code -9"),
        (3, "error: --rows is 'nonsense': give a number", "refused"),
    ],
)
def test_the_judge_sees_what_is_not_right(code: int, err: str, expected: str, tmp_path: Path) -> None:
    assert judged("sql", "rows", "text", code, err, tmp_path) == expected
