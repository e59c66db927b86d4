"""SQL on a run that is shown: what it selects, or why it does not"""

from typing import Final

import pyarrow as pa

from d5ray.dashboards.page.runs import Shown
from d5ray.errors import D5Error
from d5ray.metrics import query

MOST_ROWS: Final = 500  # of an answer
SECONDS: Final = 20.0  # for one


def answer(shown: Shown, text: str) -> tuple[pa.Table | None, str]:
    """The answer and how long it is; or None and the reason. It writes nothing and reads no other file."""
    if not text.strip():
        return None, "write a SELECT on samples, events, runs, metrics, environment, verdicts or summary"
    try:
        found = query.sql(shown.view.run, text, most_rows=MOST_ROWS + 1, seconds=SECONDS)
    except D5Error as error:
        return None, str(error)
    if found.num_rows > MOST_ROWS:
        return found.slice(0, MOST_ROWS), f"the first {MOST_ROWS} rows"
    return found, f"{found.num_rows:,} row{'s' * (found.num_rows != 1)}"
