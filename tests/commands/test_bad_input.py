"""Wrong input of the command line: one clear error, exit code 3, nothing left, no half-written run."""

import json
from pathlib import Path

import pytest

from d5ray.metrics.record.schema import VERSION
from tests.conftest import d5ray
from tests.metrics.small_runs import finished

RECIPE = """
import d5ray as d5
FIXED = {fixed}
MUTABLE = {mutable}
METRICS = {metrics}
"""
GOOD = {
    "fixed": "{'model': 'lenet', 'dataset': 'digits', 'epochs': 1}",
    "mutable": "{'optimizer': d5.optimizers.SGD, 'optimizer_args': (0.1,), 'agents': 1}",
    "metrics": "[d5.metrics.TestAccuracy() >= 0.5]",
}

# what the user types -> what the error must say: found, expected, what to do
COMMANDS = [
    (("run", "digit_lenet"), ["'digit_lenet'", "did you mean 'digits_lenet'?"]),
    (("run", "digits_lenet", "--set", "agent=4"), ["agent", "did you mean 'agents'?"]),
    pytest.param(  # which is waited for
        ("run", "digits_lenet", "--address", "127.0.0.1:1"), ["127.0.0.1:1", "ray start --head"],
        marks=pytest.mark.full,
    ),
    (("run", "digits_lenet", "--address", "http://127.0.0.1:8265"), ["ray job submit"]),
    (("run", "digits_lenet", "--set", "agents=5", "--set", "topology=Torus(2, 3)"),
     ["Torus(rows=2, columns=3) has 6 agents, the experiment has 5", "set agents=6"]),
    (("run", "digits_lenet", "--set", "evaluate=False"), ["records no test_accuracy: set evaluate=True"]),
    (("run", "digits_lenet", "--resume", "auto", "--seeds", "2"), ["--seeds and --resume exclude"]),
    (("show", "nothing"), ["'nothing'"]),
]  # fmt: skip

# a recipe of the user's own that is wrong -> what the error must say
RECIPES: dict[str, tuple[dict[str, str], list[str]]] = {
    "both": ({"mutable": "{'model': 'mlp', 'optimizer': d5.optimizers.SGD, 'optimizer_args': (0.1,)}"},
             ["'model'", "FIXED and in MUTABLE"]),
    "unknown metric": ({"metrics": "[d5.TestAcuracy() >= 0.5]"}, ["did you mean d5.metrics.TestAccuracy"]),
    "wrong direction": ({"metrics": "[d5.metrics.TestAccuracy() <= 0.5]"}, ["wrong way", ">="]),
    "kwargs of a fixed model": (
        {
            "mutable": "{'model_kwargs': {'hidden': (9, 9)}, 'optimizer': d5.optimizers.SGD, "
            "'optimizer_args': (0.1,)}"
        },
        ["'model_kwargs'", "FIXED"],
    ),
    "no data": (
        {"fixed": "{'model': 'lenet', 'dataset': 'mnist', 'epochs': 1}"},
        ["train-images-idx3-ubyte", "download"],
    ),
    "does not fit the loss": (
        {"fixed": "{'model': lambda: __import__('torch').nn.Sequential(__import__('torch').nn.Flatten(), "
                  "__import__('torch').nn.Linear(64, 7)), 'dataset': 'digits', 'epochs': 1}"},
        ["(batch, 7)", "(batch, 10)"],
    ),
}  # fmt: skip


@pytest.fixture
def empty_home(tmp_path: Path) -> Path:
    """A D5RAY_HOME in which nothing has run."""
    return tmp_path / "home"


def check_refused(arguments: tuple[str, ...], expected: list[str], home: Path) -> None:
    """The command ends with 3, says what is expected without a traceback, and leaves nothing."""
    done = d5ray(*arguments, env={"D5RAY_HOME": str(home)})
    assert done.code == 3, done
    assert done.out == ""
    for words in expected:
        assert words in done.err, done.err
    assert done.err.count("error:") == 1
    assert "Unhandled" not in done.err, done.err  # what Ray prints of errors that nobody asked for
    assert not list(home.glob("runs/*"))
    assert not done.left()


@pytest.mark.parametrize(("arguments", "expected"), COMMANDS, ids=lambda value: " ".join(value)[:60])
def test_a_wrong_command_is_one_clear_error(
    arguments: tuple[str, ...], expected: list[str], empty_home: Path
) -> None:
    """Found, expected, what to do; exit code 3; no run."""
    check_refused(arguments, expected, empty_home)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.full] if name == "does not fit the loss" else [])
        for name in RECIPES
    ],
)
def test_a_wrong_recipe_is_one_clear_error(name: str, tmp_path: Path, empty_home: Path) -> None:
    """A recipe of the user's own: found, expected, what to do; exit code 3; no run."""
    changes, expected = RECIPES[name]
    file = tmp_path / "mine.py"
    file.write_text(RECIPE.format(**(GOOD | changes)))
    check_refused(("run", str(file)), expected, empty_home)


def test_a_home_that_cannot_be_written_is_refused_before_ray_starts(tmp_path: Path) -> None:
    """D5RAY_HOME is a file: the error names it."""
    file = tmp_path / "home"
    file.write_text("not a folder")
    done = d5ray("run", "digits_lenet", env={"D5RAY_HOME": str(file)})
    assert done.code == 3
    assert str(file) in done.err
    assert file.read_text() == "not a folder"
    assert not done.left()


def test_a_run_that_cannot_be_read_is_named_beside_the_others(empty_home: Path) -> None:
    """In the list of all runs: one of a newer version, and one that is one half, with the reasons."""
    finished(empty_home / "runs", "good", seed=1)
    finished(empty_home / "runs", "newer", seed=2, schema_version=VERSION + 1, d5ray_version="9.0")
    half = finished(empty_home / "runs", "half", seed=3) / "runs.parquet"
    half.write_bytes(half.read_bytes()[:100])
    done = d5ray("runs", "--json", env={"D5RAY_HOME": str(empty_home)})
    assert done.code == 0
    assert [row["run_id"] for row in json.loads(done.out)] == ["good"]
    told = done.err.replace("\n", " ").split("! ")[1:]
    assert len(told) == 2
    assert "half" in told[0] and "runs.parquet" in told[0]
    assert "written by d5ray 9.0" in told[1] and "install" in told[1]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("show", "run"), 0),
        (("export", "run", "--to", "csv"), 3),
        (("report", "run"), 3),
    ],
)
def test_a_run_whose_rows_are_gone_says_where_they_were(
    command: tuple[str, ...], code: int, empty_home: Path, tmp_path: Path
) -> None:
    """In one line; what needs none of them shows what there is, and nothing is written without them."""
    file = finished(empty_home / "runs", "run", seed=1, rows=1400) / "samples.parquet"
    file.unlink()
    done = d5ray(*command, env={"D5RAY_HOME": str(empty_home)}, cwd=tmp_path)
    said = " ".join((done.out + done.err).split())
    assert done.code == code
    assert said.count(f"{file} is not there, and 1,400 rows were recorded in it: copy it") == 1
    assert ("seed 1" in said) == (code == 0)
    assert [*tmp_path.iterdir()] == [empty_home]
