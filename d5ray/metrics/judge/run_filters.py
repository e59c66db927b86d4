"""Choice of runs by recipe, method, time and outcome, as `d5ray runs` takes it"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, Final, final

from d5ray.errors import ConfigurationError, nearest
from d5ray.metrics.views.run_labels import short_label

Row = Mapping[str, Any]  # of the table `runs`
SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
AGO: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
GOING_WELL: Final = ("completed", "running")


@final
@dataclass(frozen=True)
class RunFilter:
    """The runs that are wanted; None for any. Names may have `*` in them, and letters may be small or large.

    failed: those alone whose verdict is FAIL, or that did not complete.
    """

    recipe: str | None = None
    method: str | None = None
    since: datetime | None = None
    failed: bool = False

    def takes(self, row: Row) -> bool:
        """True if the run with this row is wanted."""
        bad = row["verdict"] == "FAIL" or row["status"] not in GOING_WELL
        return (
            (self.recipe is None or _fits(self.recipe, row["recipe"]))
            and (self.method is None or _fits(self.method, short_label(row).method))
            and (self.since is None or (row["started"] is not None and row["started"] >= self.since))
            and (bad or not self.failed)
        )

    def takes_series(self, row: Row, found: Sequence[Row]) -> bool:
        """True if a series, by its row, has a run among those that were found, or nothing is asked for."""
        names = {each["run_id"] for each in found}
        return self == RunFilter() or not names.isdisjoint(row["runs"] or ())

    def check(self, rows: Sequence[Row]) -> None:
        """Raise `ConfigurationError` for a recipe or a method that none of some runs has."""
        for option, wanted, known in (
            ("--recipe", self.recipe, {str(row["recipe"] or "") for row in rows}),
            ("--method", self.method, {short_label(row).method for row in rows}),
        ):
            if rows and wanted is not None and not any(_fits(wanted, each) for each in known):
                raise ConfigurationError(
                    f"no run fits {option} {wanted}: {nearest(wanted, sorted(known - {''}))}"
                )

    def nothing(self, rows: Sequence[Row]) -> str:
        """The reason why none of these runs is wanted."""
        asked = {
            "--recipe": self.recipe, "--method": self.method,
            "--since": None if self.since is None else f"{self.since:%Y-%m-%d %H:%M:%S} UTC",
        }  # fmt: skip
        words = [f"{option} {value}" for option, value in asked.items() if value is not None]
        return f"none of {len(rows)} runs fits {', '.join([*words, *['--failed'] * self.failed])}"


def instant(text: str, now: datetime | None = None) -> datetime:
    """The time that `2h` (ago), `today`, `yesterday`, `2026-11-25` or `2026-11-25 22:30` means, in UTC.

    Raises `ConfigurationError` for anything else.

    >>> instant("90m", datetime(2026, 11, 25, 12, tzinfo=UTC))
    datetime.datetime(2026, 11, 25, 10, 30, tzinfo=datetime.timezone.utc)
    """
    now = datetime.now(UTC) if now is None else now
    word = text.strip().lower()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if word in ("today", "yesterday"):
        return midnight - timedelta(days=word == "yesterday")
    try:
        if ago := AGO.fullmatch(word):
            return now - timedelta(seconds=float(ago[1]) * SECONDS[ago[2]])
        found = datetime.fromisoformat(word.upper())
    except (ValueError, OverflowError):
        raise ConfigurationError(
            f"{text!r} is no time: write how long ago (30m, 2h, 3d, 1w), today, yesterday, or a date in UTC "
            "such as 2026-11-25 or '2026-11-25 22:30'"
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _fits(pattern: str, name: str | None) -> bool:
    return fnmatchcase((name or "").lower(), pattern.lower())
