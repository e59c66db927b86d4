"""The section of contenders side by side: the tables that a terminal shows of them"""

from d5ray.dashboards.report.document import Block, ReportTable, Section
from d5ray.dashboards.report.subject import Subject
from d5ray.dashboards.terminal import contenders
from d5ray.display.console import ConsoleTable as RichTable
from d5ray.display.console import Group, Text


def section(subject: Subject) -> Section | None:
    """The numbers behind the ratios of runs that measured baselines; None for runs of agents."""
    blocks: list[Block] = []
    for member in subject.members:
        if "problems" in member.described:  # of a bench, which has a section of its own
            continue
        scopes = member.view.ask("SELECT DISTINCT scope FROM samples")["scope"].to_pylist()
        if any("[" in scope for scope in scopes):
            prefix = f"{member.name}: " if len(subject.members) > 1 else ""
            blocks += [converted(table, prefix) for table in contenders.absolute(member.run.tables())]
    return Section("contenders", "Contenders", tuple(blocks)) if blocks else None


def converted(shown: RichTable | Group, prefix: str = "") -> ReportTable:
    """A table of the terminal, with the title that stands above it, or that its first column has."""
    title = ""
    if isinstance(shown, Group):
        title = str(shown.renderables[0])
        shown = next(each for each in shown.renderables if isinstance(each, RichTable))
    header = tuple(str(column.header) for column in shown.columns)
    cells = [[_plain(cell) for cell in column.cells] for column in shown.columns]
    numeric = frozenset(at for at, column in enumerate(shown.columns) if column.justify == "right")
    return ReportTable(prefix + (title or header[0]), header, list(zip(*cells, strict=True)), numeric)


def _plain(cell: object) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)
