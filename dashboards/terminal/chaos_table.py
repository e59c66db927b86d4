"""The table and the verdict of a campaign of faults, in a terminal"""

from collections.abc import Callable, Iterable, Iterator

from d5ray.dashboards.numbers import COLOURS
from d5ray.display.console import BarColumn, ConsoleTable, Field, MofNCompleteColumn, err, out, progress
from d5ray.recipes.engine.chaos.campaign import Campaign
from d5ray.recipes.engine.chaos.judging import Judged
from d5ray.recipes.engine.chaos.trials import Trial


def watched(trials: Iterable[Trial]) -> Iterator[Trial]:
    """The trials, with a bar on a terminal that says which one runs."""
    listed = list(trials)
    columns = Field("{task.description}"), BarColumn(), MofNCompleteColumn()
    with progress(*columns, show=err().is_terminal) as bar:
        task = bar.add_task("chaos", total=len(listed))
        for trial in listed:
            bar.update(task, description=f"{trial.kind} {trial.victim}")
            yield trial
            bar.advance(task)


def told(recipe: str) -> Callable[[Judged], None]:
    """Tells at once of every trial that is wrong, with the command that repeats it."""

    def tell(trial: Judged) -> None:
        for text in trial.wrong:
            err().print(f"trial {trial.trial.number}: {text}", style=COLOURS["FAIL"])
        if trial.wrong:
            err().print(f"  {trial.trial.command(recipe)}", style="dim", soft_wrap=True)

    return tell


def show(campaign: Campaign) -> None:
    """A line for each kind and victim, and the verdict."""
    table = ConsoleTable()
    for name in ("fault", "victim"):
        table.add_column(name)
    for name in ("trials", "happened", "missed", "completed", "as promised", "wrong"):
        table.add_column(name, justify="right")
    for row in campaign.rows:
        counts = (row[name] for name in ("trials", "happened", "missed", "completed", "right", "wrong"))
        table.add_row(row["kind"], row["victim"], *map(str, counts))
    out().print(table)
    done = f"{len(campaign.trials)} of {campaign.wanted} trials, seed {campaign.seed}"
    out().print(f"{campaign.verdict}  {done}", style=COLOURS.get(campaign.verdict, ""))
