"""Output of `d5ray list`: the recipes by what they are for, how long each takes, what it is"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from d5ray.display.console import ConsoleTable, out, styled

if TYPE_CHECKING:
    from d5ray.recipes.engine.library import Listed

TITLES: Final = {
    "learn": "learn: one model, until it is as good as it must be",
    "compare": "compare: several ways to do the same, side by side",
    "scale": "scale: what more agents, slow networks and slow agents cost",
    "benchmarks": "benchmarks: what d5ray itself costs, from this checkout alone",
}


def show(found: Mapping[str, "Listed"]) -> None:
    """Print each group of recipes below its title; the times are those on two cores."""
    groups = dict.fromkeys([*TITLES, *(listed.group for listed in found.values())])
    for group in groups:
        table = ConsoleTable(header=False)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column()
        for name, listed in found.items():
            if listed.group == group:
                table.add_row(name, listed.takes, listed.about)
        if table.row_count:
            out().print(styled(TITLES.get(group, group), style="bold"))
            out().print(table)
