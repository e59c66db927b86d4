"""Writes a report where it is wanted: the ending of the path says what is made"""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from d5ray.dashboards.report.building import built
from d5ray.dashboards.report.document import ReportDocument
from d5ray.dashboards.report.formats import figure_style
from d5ray.dashboards.report.formats.html_page import page
from d5ray.dashboards.report.formats.markdown import file_name, markdown
from d5ray.dashboards.report.subject import subject_of
from d5ray.errors import ConfigurationError
from d5ray.metrics.record.files import replacing

PAGES: Final = (".html", ".htm")
TEXTS: Final = (".md", ".markdown")


def write(names: Sequence[str], output: Path) -> list[Path]:
    """Write the report on the runs that these texts name; gives what was written.

    report.html: one page that needs nothing else; report.md: the text, with the figures as PNG and SVG in
    `report-figures` beside it; a path without an ending: a folder with both, the figures in `figures`. What
    is there already is replaced, file by file, when the new one is complete. Raises `ConfigurationError` and
    `StorageError`.
    """
    kind = output.suffix.lower()
    if kind not in ("", *PAGES, *TEXTS) and not output.is_dir():
        raise ConfigurationError(
            f"--output {output}: give a name that ends in .html (one page) or .md (text with figures beside "
            "it), or the name of a folder, which gets both and every figure as SVG and PNG"
        )
    figure_style.check_installed()
    subject = subject_of(names)
    try:
        report = built(subject)
        if kind in PAGES and not output.is_dir():
            return [_written(output, page(report))]
        if kind in TEXTS and not output.is_dir():
            figures = output.with_name(f"{output.stem}-figures")
            text = markdown(report, PurePosixPath(figures.name))
            return [_written(output, text), *_figures(report, figures)]
        text = markdown(report, PurePosixPath("figures"))
        return [
            _written(output / "report.html", page(report)),
            _written(output / "report.md", text),
            *_figures(report, output / "figures"),
        ]
    finally:
        subject.close()


def _figures(report: ReportDocument, folder: Path) -> list[Path]:
    made = []
    for figure in report.figures:
        drawn = figure.draw()
        made.append(_written(folder / f"{file_name(figure)}.svg", figure_style.svg(drawn)))
        made.append(_written(folder / f"{file_name(figure)}.png", figure_style.png(drawn)))
    return made


def _written(file: Path, content: str | bytes) -> Path:
    with replacing(file) as temporary:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file
