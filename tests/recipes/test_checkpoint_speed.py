"""Claims about timing checkpoints: what is timed is what is written, and the verdict is of ratios"""

from pathlib import Path

import pytest

from benchmarks.checkpoint_speed import recipe as checkpoint_speed
from benchmarks.checkpoint_speed.job import CheckpointTimes, InTurn, SavedAndWritten
from benchmarks.checkpoint_speed.metrics import CheckpointTimeRatio
from d5ray.distributed.checkpoints import folder as folders
from d5ray.errors import AgentError, ConfigurationError
from d5ray.recipes.engine.recipe import Recipe
from d5ray.recipes.engine.runner import run


def test_everything_is_done_as_often_as_it_says(tmp_path: Path) -> None:
    found = InTurn(("400 kB",), 3, str(tmp_path))(0)
    assert {what: len(seconds) for what, seconds in found["400 kB"].items()} == {
        "save": 3, "restore": 3, "write": 3,
    }  # fmt: skip
    checkpoint = tmp_path / "saved" / "step-00000001" / "agent-0.safetensors"
    plain = tmp_path / "plain"
    assert checkpoint.stat().st_size == pytest.approx(plain.stat().st_size, rel=0.01)
    assert plain.stat().st_size == pytest.approx(2 * 400_000, rel=0.05)  # parameters and momentum


def test_a_restore_that_gives_other_bits_measures_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As would one that restores nothing."""
    monkeypatch.setattr("benchmarks.checkpoint_speed.job.restore", lambda *_: None)
    with pytest.raises(AgentError, match="is not what was saved: nothing is measured"):
        InTurn(("4 kB",), 1, str(tmp_path))(0)


@pytest.mark.full
def test_a_small_run_gives_ratios_and_leaves_no_checkpoint() -> None:
    """Two processes are too few for an interval."""
    recipe = Recipe.of(
        checkpoint_speed.FIXED,
        checkpoint_speed.MUTABLE | {"sizes": ("40 kB",), "pairs": 2, "repetitions": 2},
        [CheckpointTimeRatio("checkpoint[1]", what, "40 kB") <= 1000 for what in ("save", "restore")],
        name="small",
    )
    result = run(recipe, address=None, quiet=True)
    assert [verdict.n for verdict in result.verdicts] == [2, 2]
    assert all(verdict.value is not None and verdict.value > 0 for verdict in result.verdicts)
    assert not [path for path in result.folder.rglob("*") if folders.MANIFEST in path.name]


def test_wrong_values_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="repetitions is 0"):
        CheckpointTimes(comparisons=((SavedAndWritten(),),), sizes=("4 kB",), repetitions=0)
    with pytest.raises(ConfigurationError, match="what is 'load': it must be 'save' or 'restore'"):
        CheckpointTimeRatio("checkpoint[1]", "load", "4 kB")
