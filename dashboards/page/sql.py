"""SQL on a run that is shown: what it selects, or why it does not"""

from collections.abc import Callable
from contextlib import closing
from typing import Final

import pyarrow as pa

from d5ray.dashboards.page.runs import OpenRun
from d5ray.errors import D5Error
from d5ray.metrics.queries.source import Limits, while_wanted

MOST_ROWS: Final = 500  # of an answer
SECONDS: Final = 20.0  # for one


def answer(
    shown: OpenRun, text: str, gone: Callable[[], bool] = lambda: False
) -> tuple[pa.Table | None, str]:
    """The answer and how long it is; or None and the reason. It writes nothing and reads no other file.

    gone: whether whoever asked has gone meanwhile, which ends the query.
    """
    if not text.strip():
        return None, "write a SELECT on samples, events, runs, metrics, environment, verdicts or summary"
    try:
        with (
            closing(shown.view.run.within(Limits(seconds=SECONDS))) as source,
            while_wanted(source, gone),
            source.ask(text) as rows,
        ):
            found = rows.table(MOST_ROWS + 1)
    except D5Error as error:
        return None, str(error)
    if found.num_rows > MOST_ROWS:
        return found.slice(0, MOST_ROWS), f"the first {MOST_ROWS} rows"
    return found, f"{found.num_rows:,} row{'s' * (found.num_rows != 1)}"
