"""A report as Markdown, for a paper's appendix or a pull request: tables, and the figures beside it"""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from d5ray.dashboards.report.document import Block, Figure, Note, ReportDocument, ReportTable, TableCell
from d5ray.dashboards.report.formats import figure_style

SIGNS = re.compile(r"([\\`*_{}\[\]<>#|~$&!])")


def markdown(report: ReportDocument, figures: PurePosixPath) -> str:
    """The text. figures: the folder in which they lie as PNG and SVG, as seen from the text."""
    lines = [f"# {escaped(report.title)}", ""]
    lines += [" ".join(f"**{escaped(word.text)}**" for word in report.verdicts), ""]
    lines += [f"- {escaped(name)}: {escaped(value)}" for name, value in report.facts]
    for section in report.sections:
        lines += ["", f"## {escaped(section.title)}"]
        for block in section.blocks:
            lines += ["", *_block(block, figures)]
    return "\n".join(lines) + "\n"


def _block(block: Block, figures: PurePosixPath) -> Iterator[str]:
    if isinstance(block, Note):
        yield f"> {escaped(block.text)}" if block.warning else escaped(block.text)
    elif isinstance(block, Figure):
        yield f"![{escaped(block.title)}]({figures / file_name(block)}.png)"
        yield ""
        yield f"*{escaped(block.title)}.* {escaped(block.told)}"
    else:
        yield from table(block)


def table(found: ReportTable) -> Iterator[str]:
    """A table under its title, columns of numbers to the right."""
    yield f"**{escaped(found.title)}**"
    yield ""
    yield f"| {' | '.join(map(escaped, found.header))} |"
    yield f"|{'|'.join('---:' if at in found.numeric else '---' for at in range(len(found.header)))}|"
    for row in found.rows:
        cells = (cell.text if isinstance(cell, TableCell) else cell for cell in row)
        yield f"| {' | '.join(map(escaped, cells))} |"


def escaped(text: str) -> str:
    r"""A text that stays text in Markdown, and in the HTML that is made of it.

    >>> escaped("a|b <script>")
    'a\\|b \\<script\\>'
    """
    return SIGNS.sub(r"\\\1", figure_style.plain(" ".join(text.split())))


def file_name(figure: Figure) -> str:
    """The name of a figure's files, without an ending."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", figure.name)
