"""The rows of samples that a viewer looks at, a page of them at a time"""

from typing import Any, Final

from d5ray.dashboards.page import tables
from d5ray.dashboards.page.runs import OpenRun
from d5ray.metrics.views import samples

TITLES: Final = {"t_wall": "time (UTC)"}  # of columns that are called otherwise


def listed(shown: OpenRun, chosen: samples.Filter, number: int) -> tuple[Any, str] | None:
    """The number-th page of the rows that fit, and which of how many they are; None after the last page."""
    known = shown.ask(samples.span, chosen=chosen)
    found = samples.page(shown.view, chosen, number, known)
    if not found.num_rows and number:
        return None
    begin, total = number * samples.PAGE_ROWS, known["n"]
    told = f"{begin + 1:,} to {begin + found.num_rows:,} of {total:,}" if total else "no rows fit"
    return tables.table(found.to_pylist(), {name: TITLES.get(name, name) for name in samples.COLUMNS}), told
