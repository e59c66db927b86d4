"""The section of the environment: what differs between the runs' machines and versions, then the rest"""

from d5ray.dashboards.report.document import Block, Note, ReportTable, Section, TableCell
from d5ray.dashboards.report.subject import Subject
from d5ray.dashboards.terminal.environments import of, sorted_out


def section(subject: Subject) -> Section | None:
    """The facts that were recorded of each run's nodes; None where none were."""
    facts = of([member.run for member in subject.members])
    if not any(facts.values()):
        return None
    found = sorted_out(facts)
    blocks: list[Block] = []
    if found.differing:
        rows = [
            (key if first else "", run, node, TableCell(value, "differs"))
            for key, told in found.differing.items()
            for first, (run, node, value) in zip((True, *(False for _ in told)), told, strict=False)
        ]
        few = len(rows) <= 60
        blocks.append(
            ReportTable(
                "What differs between the runs", ("fact", "run", "node", "value"), rows, folded=not few
            )
        )
    elif len(subject.members) > 1:
        blocks.append(Note("No recorded fact differs between the machines of these runs."))
    alike = list(found.alike.items())
    blocks.append(ReportTable("Alike in all of them", ("fact", "value"), alike, folded=True))
    if found.unknown:
        blocks.append(Note(f"Not known: {', '.join(found.unknown)}"))
    return Section("environment", "Environment", tuple(blocks))
