"""Output of `d5ray compare`: a line for every metric, and what has to be known to believe it"""

from collections.abc import Sequence

from d5ray.dashboards.quantities import count, unit_of
from d5ray.display.console import ConsoleTable, Screen, out, styled
from d5ray.metrics.judge.comparison import RunComparison
from d5ray.metrics.judge.differences import BAD, GOOD, MetricDifference
from d5ray.metrics.record.reader import Run
from d5ray.metrics.views.run_labels import besides, in_words

STYLES = dict.fromkeys(GOOD, "bold green") | dict.fromkeys(BAD, "bold red") | {"inconclusive": "yellow"}
MOST_SETTINGS = 8  # in which the sides differ


def show(comparison: RunComparison, proposed: Sequence[Run] = ()) -> None:
    """Print a comparison on standard output. proposed: the first side's partners, where these are none."""
    console = out()
    sides = {"first": (comparison.first, comparison.first_is)}
    sides["second"] = comparison.second, comparison.second_is
    for word, (names, label) in sides.items():
        console.print(f"{word:<6}  {_side(names)}")
        if label:
            console.print(f"        {label}", style="dim")
    if comparison.incomparable:
        console.print("incomparable: what is FIXED differs, or the data", style="bold red")
        for line in comparison.incomparable:
            console.print(f"  {line}")
        if proposed:
            partners(comparison.first[0], proposed)
        return
    _settings(comparison, console)
    console.print(_table(comparison.differences))
    for line in comparison.conclusion:
        console.print(line)
    reasons = {difference.reason for difference in comparison.differences if difference.reason}
    for note in (*comparison.notes, *sorted(reasons)):
        console.print(f"! {note}", style="yellow")


def partners(name: str, proposed: Sequence[Run]) -> None:
    """Print the runs with which a run can be compared, and the command that does it."""
    console = out()
    if not proposed:
        console.print(f"no other run can be compared with {name}: what is FIXED, or the data differ")
        return
    console.print(f"{name} can be compared with")
    rows = [run.row for run in proposed]
    table = ConsoleTable("run", "verdict", "seed", "what it is", "besides")
    for run, row, other in zip(proposed, rows, besides(rows), strict=True):
        table.add_row(run.name, row["verdict"] or "–", str(row["seed"]), in_words(row), other)
    console.print(table)
    console.print(f"d5ray compare {name} {proposed[0].name}")


def _settings(comparison: RunComparison, console: Screen) -> None:
    """Print in what the sides differ, the important settings first."""
    told = [f"{key} {one} → {other}" for key, one, other in comparison.differing]
    left = len(told) - MOST_SETTINGS
    more = [f"and {count(left, 'more setting')}"] if left > 0 else []
    console.print("differ  " + (", ".join([*told[:MOST_SETTINGS], *more]) or "in no setting but the seed"))


def _table(differences: tuple[MetricDifference, ...]) -> ConsoleTable:
    table = ConsoleTable(
        "metric", "estimator", numbers=("first", "second", "second / first", "95% interval", "pairs")
    )
    table.add_column("the second is")
    for each in differences:
        interval = "" if each.low is None or each.high is None else f"[{each.low:.3f}, {each.high:.3f}]"
        unit = unit_of(each.unit, (each.first, each.second))
        table.add_row(
            each.metric,
            each.estimator,
            f"{unit.text(each.first)} {unit.name}".rstrip(),
            f"{unit.text(each.second)} {unit.name}".rstrip(),
            "–" if each.ratio is None else f"{each.ratio:.3f}",
            interval,
            str(each.n),
            styled(each.verdict, style=STYLES.get(each.verdict, "")),
        )
    return table


def _side(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{count(len(names), 'run')}: {names[0]} to {names[-1]}"
