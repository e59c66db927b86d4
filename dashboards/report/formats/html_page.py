"""A report as one page of HTML that needs nothing else: no script, no font, no picture from elsewhere"""

import html
import re
from collections.abc import Iterator
from typing import Final

from d5ray.dashboards.report.document import (
    Block,
    Figure,
    Note,
    ReportDocument,
    ReportTable,
    Section,
    TableCell,
)
from d5ray.dashboards.report.formats import figure_style
from d5ray.dashboards.report.formats.html_style import CSS

# What of a figure's colours the page replaces by its own, so that it is readable on dark paper too.
THEMED: Final = {
    figure_style.INK: "var(--ink)", figure_style.FAINT: "var(--faint)", figure_style.GRID: "var(--grid)",
    figure_style.PAPER: "var(--paper)",
}  # fmt: skip

LONG: Final = 60  # characters of a cell that may be broken into lines


def page(report: ReportDocument) -> str:
    """The page, as text; every text of a run is text in it, whatever it contains."""
    title = _text(report.title)
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            # nothing is loaded, sent or executed, whatever a text of a run contains
            '<meta http-equiv="Content-Security-Policy" '
            "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">",
            f"<title>{title}: d5ray report</title>\n<style>{CSS}</style>\n</head>\n<body>",
            *_header(report, title),
            "<main>",
            *(line for section in report.sections for line in _section(section)),
            "</main>\n</body>\n</html>\n",
        ]
    )


def _header(report: ReportDocument, title: str) -> Iterator[str]:
    yield f'<header>\n<p class="kind">d5ray report</p>\n<h1>{title}</h1>'
    words = " ".join(_cell(word, "span", "word") for word in report.verdicts)
    yield f'<p class="words">{words}</p>\n<dl class="facts">'
    for name, value in report.facts:
        yield f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>"
    yield '</dl>\n<nav aria-label="Sections">'
    for section in report.sections:
        yield f'<a href="#{section.key}">{_text(section.title)}</a>'
    yield "</nav>\n</header>"


def _section(section: Section) -> Iterator[str]:
    """Figures that follow each other stand side by side where there is room."""
    yield f'<section id="{section.key}">\n<h2>{_text(section.title)}</h2>'
    row: list[Figure] = []
    for block in (*section.blocks, None):
        if isinstance(block, Figure):
            row.append(block)
            continue
        if row:
            yield '<div class="figures">'
            for figure in row:
                yield from _figure(figure)
            yield "</div>"
            row = []
        if block is not None:
            yield from _block(block)
    yield "</section>"


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Note):
        yield f'<p class="note{" warning" if block.warning else ""}">{_text(block.text)}</p>'
    elif isinstance(block, ReportTable):
        yield from _table(block)


def _figure(figure: Figure) -> Iterator[str]:
    yield f'<figure id="figure-{_key(figure.name)}">'
    yield f"<h3>{_text(figure.title)}</h3>"
    yield inline(figure_style.svg(figure.draw()), _key(figure.name), figure.told)
    yield f"<figcaption>{_text(figure.told)}</figcaption>\n</figure>"


def inline(drawn: str, key: str, told: str) -> str:
    """An SVG as a part of a page: with its colours, under names that no other figure has.

    drawn: as `style.svg` gives it.
    """
    drawn = drawn[drawn.index("<svg") :]
    drawn = re.sub(r"<!--.*?-->", "", drawn, flags=re.DOTALL)
    named = set(re.findall(r"(?:url\(#|href=\"#)([^\")]+)", drawn))
    drawn = re.sub(
        r' id="([^"]+)"', lambda found: f' id="{key}-{found[1]}"' if found[1] in named else "", drawn
    )
    drawn = re.sub(r"url\(#([^)]+)\)", rf"url(#{key}-\1)", drawn)
    drawn = re.sub(r'href="#([^"]+)"', rf'href="#{key}-\1"', drawn)
    for colour, own in THEMED.items():
        drawn = drawn.replace(colour, own)
    drawn = re.sub(
        r'<svg [^>]*viewBox="([^"]+)"[^>]*>',
        rf'<svg viewBox="\1" role="img" aria-label="{_text(told)}">',
        drawn,
    )
    return drawn.replace("xlink:href", "href")


def _table(table: ReportTable) -> Iterator[str]:
    """A folded one is opened by who wants it, and open on paper."""
    if table.folded:
        yield f"<details>\n<summary>{_text(table.title)} ({len(table.rows)})</summary>"
    else:
        yield f"<h3>{_text(table.title)}</h3>"
    yield '<div class="wide" tabindex="0">\n<table>\n<thead><tr>'
    for at, name in enumerate(table.header):
        side = ' class="number"' if at in table.numeric else ""
        yield f'<th scope="col"{side}>{_text(name)}</th>'
    yield "</tr></thead>\n<tbody>"
    for row in table.rows:
        cells = "".join(_cell(cell, "td", _kind(table, at, cell)) for at, cell in enumerate(row))
        yield f"<tr>{cells}</tr>"
    yield "</tbody>\n</table>\n</div>" + ("\n</details>" if table.folded else "")


def _kind(table: ReportTable, at: int, cell: str | TableCell) -> str:
    if at in table.numeric:
        return "number"
    return "long" if len(cell.text if isinstance(cell, TableCell) else cell) > LONG else ""


def _cell(cell: str | TableCell, tag: str, kind: str) -> str:
    text, mark = (cell.text, cell.mark) if isinstance(cell, TableCell) else (cell, "")
    classes = " ".join(name for name in (kind, mark) if name)
    told = f' class="{classes}"' if classes else ""
    return f"<{tag}{told}>{_text(text)}</{tag}>"


def _text(text: str) -> str:
    return html.escape(figure_style.plain(text))


def _key(name: str) -> str:
    """A name as a part of addresses and files: letters, digits and signs that mean nothing there."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name)
