"""Building of a report from the names of its runs"""

from collections.abc import Sequence
from typing import Final

from d5ray.dashboards.quantities import count
from d5ray.dashboards.report.document import ReportDocument
from d5ray.dashboards.report.sections import (
    breakdown,
    communication,
    comparison,
    convergence,
    environment,
    verdict,
)
from d5ray.dashboards.report.subject import Subject
from d5ray.names.kits import parts

FIRST: Final = (verdict.section, convergence.section, breakdown.section, communication.section)
LAST: Final = (comparison.section, environment.section)


def built(subject: Subject) -> ReportDocument:
    """Every section that has something to say; figures are drawn when they are written.

    Close the subject when the report is written, not before.
    """
    makers = (*FIRST, *parts("sections of a report").values(), *LAST)
    found = [section(subject) for section in makers]
    return ReportDocument(
        _title(subject),
        verdict.words_of(subject),
        _facts(subject),
        tuple(section for section in found if section is not None),
    )


def _title(subject: Subject) -> str:
    recipes = _unique([str(member.row["recipe"] or member.name) for member in subject.members])
    return ", ".join(recipes[:3]) + (", …" if len(recipes) > 3 else "")


def _facts(subject: Subject) -> tuple[tuple[str, str], ...]:
    """The facts of all runs together."""
    members = subject.members
    started = sorted(member.row["started"] for member in members if member.row["started"])
    days = _unique([f"{day:%Y-%m-%d}" for day in started])
    facts = {
        "runs": f"{count(len(members), 'run')} of {count(len(subject.settings), 'setting')}",
        "measured": " to ".join(days[:: max(1, len(days) - 1)]) if days else "",
        "recipe hash": ", ".join(_unique([(m.row["recipe_hash"] or "")[:12] for m in members])),
        "d5ray": ", ".join(_unique([m.row["d5ray_version"] or "" for m in members])),
        "commit": ", ".join(_unique([_commit(m.row["git"]) for m in members])),
        "host": ", ".join(_unique([m.row["host"] or "" for m in members])),
    }
    return tuple((name, text) for name, text in facts.items() if text)


def _commit(git: str | None) -> str:
    """A commit as people write it; `-dirty` where more had changed."""
    if not git or git.startswith("unavailable"):
        return ""
    name, dirty, _ = git.partition("-dirty")
    return name[:12] + dirty


def _unique(texts: Sequence[str]) -> list[str]:
    return [text for text in dict.fromkeys(texts) if text]
