"""Output of `d5ray compare`: a line for every metric, and what has to be known to believe it"""

from d5ray.dashboards.numbers import count, number
from d5ray.display.console import ConsoleTable, out, styled
from d5ray.metrics.judge.comparison import RunComparison
from d5ray.metrics.judge.differences import BAD, GOOD, MetricDifference

STYLES = dict.fromkeys(GOOD, "bold green") | dict.fromkeys(BAD, "bold red") | {"inconclusive": "yellow"}


def show(comparison: RunComparison) -> None:
    """Print a comparison on standard output."""
    console = out()
    console.print(f"first   {_side(comparison.first)}")
    console.print(f"second  {_side(comparison.second)}")
    if comparison.incomparable:
        console.print("incomparable: what is FIXED differs, or the data", style="bold red")
        for line in comparison.incomparable:
            console.print(f"  {line}")
        return
    console.print(_table(comparison.differences))
    for line in comparison.conclusion:
        console.print(line)
    reasons = {difference.reason for difference in comparison.differences if difference.reason}
    for note in (*comparison.notes, *sorted(reasons)):
        console.print(f"! {note}", style="yellow")


def _table(differences: tuple[MetricDifference, ...]) -> ConsoleTable:
    table = ConsoleTable("metric", numbers=("first", "second", "second / first", "95% interval", "pairs"))
    table.add_column("the second is")
    for each in differences:
        interval = "" if each.low is None or each.high is None else f"[{each.low:.3f}, {each.high:.3f}]"
        table.add_row(
            each.metric + ("" if each.unit == "1" else f" ({each.unit})"),
            number(each.first),
            number(each.second),
            "–" if each.ratio is None else f"{each.ratio:.3f}",
            interval,
            str(each.n),
            styled(each.verdict, style=STYLES.get(each.verdict, "")),
        )
    return table


def _side(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{count(len(names), 'run')}: {names[0]} to {names[-1]}"
