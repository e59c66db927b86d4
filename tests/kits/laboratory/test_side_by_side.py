"""Claims about comparisons: who is measured when, what is kept of it, and who cannot be measured here."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import pytest

from d5ray.actors.group.run_row import RunOrigin
from d5ray.errors import AgentError, ConfigurationError
from d5ray.kits.laboratory.checking.checker import violations
from d5ray.kits.laboratory.comparisons import rounds
from d5ray.kits.laboratory.comparisons.contenders import Contender, RankSeries
from d5ray.kits.laboratory.comparisons.side_by_side import Comparison, SideBySide
from d5ray.kits.laboratory.metrics.side_by_side import StepTimeOf, StepTimeRatio, contenders
from d5ray.metrics.record.reader import Run, list_runs
from d5ray.recipes.engine.recipe import Recipe, Result


@final
@dataclass(frozen=True, kw_only=True)
class Planted(SideBySide):
    """A job whose work is nothing."""

    cpus = 0

    def check(self) -> None: ...


@final
@dataclass(frozen=True)
class Says(Contender[Planted]):
    """A contender of two processes that says how long its steps took: each pair of ranks (seconds, half)."""

    word: str
    seconds: float = 1.0
    lacks: str = ""
    processes: int = 2

    def missing(self) -> str:
        return self.lacks

    def measure(self, job: Planted, folder: Path) -> list[RankSeries]:
        if self.seconds < 0:
            raise AgentError("its process died")
        (folder / "trace").write_text("of what it did")
        steps = [100 * self.seconds, self.seconds, self.seconds]
        return [
            RankSeries("step_time", "s", rank, [share * value for value in steps], warmup=1)
            for rank, share in enumerate((1.0, 0.5))
        ] + [RankSeries("test_accuracy", "1", 0, [0.9], phase="test")]


@final
@dataclass(frozen=True)
class FailsAtTimes(Contender[Planted]):
    """A peer that measures a second, and fails in some of the rounds."""

    fails: tuple[int, ...]
    processes: int = 1
    is_peer: ClassVar[bool] = True
    word = "peer"

    def measure(self, job: Planted, folder: Path) -> list[RankSeries]:
        turns = [contender.name for _, contender in job.interleaved()]
        pair = [at for at, name in enumerate(turns) if name == self.name].index(int(folder.name))
        if pair in self.fails:
            raise AgentError("a measured process ended with code 1:\nTraceback\nAssertionError: in round")
        return [RankSeries("step_time", "s", 0, [1.0, 1.0, 1.0], warmup=1)]


A, B, C, D = (Says(word) for word in "abcd")


def words(job: SideBySide) -> str:
    """The order of the turns."""
    return "".join(contender.name[0] for _, contender in job.interleaved())


def test_the_sides_of_a_comparison_are_first_alternately() -> None:
    """Each contender comes once a round."""
    assert words(Planted(comparisons=((A, B), (C, D)), pairs=3)) == "abcd" + "badc" + "abcd"
    assert words(Planted(comparisons=((A, B, C), (D,)), pairs=2)) == "abcd" + "cbad"


@pytest.mark.parametrize(
    ("comparisons", "words"),
    [
        (((A, B), (A, C)), r"a\[2\] twice"),
        ((A, B), "tuples of contenders"),
        ((), "tuples of contenders"),
        (7, "tuples of contenders"),
    ],
)
def test_comparisons_of_nothing_or_of_the_same_twice_are_refused(
    comparisons: tuple[Comparison, ...], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        Planted(comparisons=comparisons)


def run(*comparisons: Comparison, pairs: int = 6) -> Result:
    """Contenders to their verdict: a's steps must take at most 0.6 of b's."""
    fixed = {"job": Planted, "comparisons": comparisons}
    criterion = StepTimeRatio(ours="a[2]", base="b[2]") <= 0.6
    recipe = Recipe.of(fixed, {"pairs": pairs}, [criterion], name="planted")
    return rounds.run(recipe.made(), recipe, RunOrigin(**recipe.described()), None, quiet=True)


def test_what_contenders_measured_is_kept_by_round_and_rank_and_judged(own_home: Path) -> None:
    """Rounds 0 to 5 of two ranks with one warm-up step and two others; 1 s over 2 s is at most 0.6."""
    result = run((Says("a", 1.0), Says("b", 2.0)))
    assert (result.verdict, result.verdicts[0].value, result.verdicts[0].n) == ("PASS", 0.5, 6)
    assert violations(Run(result.folder)) == []
    samples = Run(result.folder).tables()["samples"].to_pylist()
    found = sorted(
        (row["scope"], row["rep"], row["rank"], row["step"], row["phase"], row["value"])
        for row in samples
        if row["metric"] == "step_time"
    )
    assert found == sorted(
        (name, pair, rank, step, "train" if step else "warmup", seconds * share * (1 if step else 100))
        for name, seconds in (("a[2]", 1.0), ("b[2]", 2.0))
        for pair in range(6)
        for rank, share in enumerate((1.0, 0.5))
        for step in range(3)
    )
    assert {row["phase"] for row in samples if row["metric"] == "test_accuracy"} == {"test"}
    (kept,) = list_runs(own_home / "runs")
    assert (kept.row["status"], kept.row["agents"]) == ("completed", 2)
    assert {path.suffix for path in kept.folder.iterdir()} == {".parquet"}  # the contenders' files are gone


def test_who_cannot_be_measured_leaves_the_others_and_is_named(own_home: Path) -> None:
    """The verdict stays open with the reason; everybody else has rows."""
    why = "there is no b: install b"
    result = run((Says("a"), Says("b", lacks=why), Says("c")), pairs=1)
    assert (result.verdict, result.verdicts[0].reason) == ("INCONCLUSIVE", f"unavailable: {why}")
    samples = Run(result.folder).tables()["samples"].to_pylist()
    assert {row["scope"] for row in samples if row["value"] is not None} == {"a[2]", "c[2]"}


def test_a_contender_that_fails_ends_the_run_with_its_error_and_what_was_measured(own_home: Path) -> None:
    with pytest.raises(AgentError, match="its process died"):
        run((Says("a"), Says("b", -1.0)), pairs=2)
    (kept,) = list_runs(own_home / "runs")
    assert (kept.row["status"], kept.row["stop_reason"]) == ("failed", "its process died")
    assert {row["scope"] for row in kept.tables()["samples"].to_pylist()} == {"a[2]"}


def test_a_peer_that_fails_in_a_round_is_unavailable_and_leaves_the_others_figures(own_home: Path) -> None:
    """All rounds are measured; its times and its ratio say how often it failed and why, and no number."""
    criteria = [
        StepTimeOf("a[2]") <= 1.5,
        StepTimeOf("peer[1]") <= 1.5,
        StepTimeRatio(ours="a[2]", base="peer[1]") <= 1.5,
    ]
    fixed = {"job": Planted, "comparisons": ((Says("a"), FailsAtTimes((2, 5))),)}
    recipe = Recipe.of(fixed, {"pairs": 6}, criteria, name="planted")
    result = rounds.run(recipe.made(), recipe, RunOrigin(**recipe.described()), None, quiet=True)
    ours, peers, ratio = result.verdicts
    assert (result.status, ours.value, ours.n, ours.verdict) == ("completed", 1.0, 6, "PASS")
    why = "unavailable: peer[1] failed in 2 of 6 rounds: a measured process ended with code 1: "
    for each in (peers, ratio):
        assert (each.value, each.verdict) == (None, "INCONCLUSIVE")
        assert each.reason == why + "AssertionError: in round"
    tables = Run(result.folder).tables()
    assert contenders(tables) == ["a[2]"]  # whose times are shown
    samples = tables["samples"].to_pandas().query("agent == 'peer[1]/0'")
    assert sorted(samples[samples.value.isna()].rep) == [2, 5]
    assert sorted(samples[samples.value.notna()].rep.unique()) == [0, 1, 3, 4]
