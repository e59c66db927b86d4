"""How Sphinx makes a site of lessons, guide and, from the docstrings, map and reference: `make docs`"""

import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(Path(__file__).parent.parent))

from d5ray.names import namespaces
from docs.tree import REPOSITORY, folders

project = "d5ray"
author = "the d5ray contributors"
copyright = "the d5ray contributors, BSD-3-Clause"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
smartquotes = False  # options of commands keep their two hyphens
html_theme = "furo"
html_title = "d5ray"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_show_sphinx = False
templates_path: list[str] = []
exclude_patterns = ["static"]
myst_heading_anchors = 3
myst_enable_extensions = ["html_image"]
suppress_warnings = ["misc.highlighting_failure"]  # sessions are shown as they are
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False
python_maximum_signature_line_length = 80
toc_object_entries = False

# Pages of the repository that are pages of the site too, and what is in the repository alone.
SHOWN = {
    "benchmarks/RESULTS.md": "results.md",
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing.md",
}
HALVED = ("Mesh", "Network")  # classes whose base is their other half: its members are shown with theirs
OUTSIDE = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+)((?!docs/)[\w./-]+)(#[\w-]+)?\)")
BESIDE = re.compile(r"\S {2,}\S")  # columns, or a formula with its source


class Public(SphinxDirective):
    """`.. public:: d5ray.training !d5ray.training.events`: public names, without those of modules with !."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        lines = [line for name in public_names(self.arguments[0]) for line in (*_described(name), "")]
        if not lines:
            raise self.error(f"{self.arguments[0]}: no public name comes from there")
        return self.parse_text_to_nodes("\n".join(lines))


class Files(SphinxDirective):
    """`.. files::`: the map of files, a section with a table for every folder."""

    def run(self) -> list[nodes.Node]:
        lines: list[str] = []
        for folder in folders():
            title = f"{folder.path}/" if folder.path else folder.about
            lines += [title, "-" * len(title), "", _prose(folder.about) if folder.path else "", ""]
            lines += [".. list-table::", "   :widths: 30 70", ""] if folder.files else []
            for name, text in folder.files.items():
                lines += [f"   * - ``{name}``", f"     - {_prose(text)}"]
            lines += [""]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def public_names(given: str) -> list[str]:
    """The public names of modules that begin with these words, without those of modules with !."""
    wanted = tuple(f"{word}." for word in given.split() if not word.startswith("!"))
    elsewhere = tuple(f"{word[1:]}." for word in given.split() if word.startswith("!"))
    modules = {name: f"{namespaces.table(place)[name]}." for name, place in namespaces.places().items()}
    return sorted(
        name for name, module in modules.items() if module.startswith(wanted)
        and not module.startswith(elsewhere)
    )  # fmt: skip


def lead(app: Sphinx, docname: str, source: list[str]) -> None:
    """Let links to files of the repository lead to their page of the site, or be the name of the file."""
    here = Path(app.srcdir, docname).parent

    def led(found: re.Match[str]) -> str:
        text, up, path, anchor = found.groups()
        name = (here / up / path).resolve()
        if name.is_relative_to(app.srcdir):
            return found[0]
        inner = name.relative_to(REPOSITORY).as_posix()
        if inner in SHOWN:
            return f"[{text}]({'../' * len(here.relative_to(app.srcdir).parts)}{SHOWN[inner]}{anchor or ''})"
        return text if text.strip("`") == inner else f"{text} (`{inner}`)"

    source[0] = OUTSIDE.sub(led, source[0])


def _described(name: str) -> list[str]:
    thing, path = namespaces.public(name), f"{namespaces.places()[name]}.{name}"
    if not isinstance(thing, type):
        return [f".. autofunction:: {path}"]
    kind = "autoexception" if issubclass(thing, BaseException) else "autoclass"
    inherited = ["   :inherited-members: object"] if name in HALVED else []
    return [f".. {kind}:: {path}", "   :members:", *inherited, "   :show-inheritance:"]


def plain(_app: Sphinx, _what: str, _name: str, _thing: Any, _options: Any, lines: list[str]) -> None:
    """Make reStructuredText of a docstring that is written to be read as it is: tables stay tables."""
    paragraphs = "\n".join(lines).strip("\n").split("\n\n")
    lines[:] = "\n\n".join(map(_paragraph, paragraphs)).split("\n")
    lines.append("")


def _paragraph(text: str) -> str:
    if text.lstrip().startswith(">>>"):
        return text
    rows = text.split("\n")
    if text.startswith("- "):
        return _prose(text)
    if any(BESIDE.search(row) or row.startswith(" ") for row in rows):
        return "\n".join(["::", "", *(f"   {row}" for row in rows)])
    return _prose(text)


def _prose(text: str) -> str:
    """Backticks hold code, and no other sign means anything."""
    parts = text.split("`")
    for at in range(0, len(parts), 2):
        parts[at] = re.sub(r"([\\*|]|_(?=\W|$))", r"\\\1", parts[at])
    if len(parts) % 2 == 0:  # one alone
        return "\\`".join(parts)
    return "".join(f"\\ ``{part}``\\ " if at % 2 else part for at, part in enumerate(parts) if part)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("public", Public)
    app.add_directive("files", Files)
    app.connect("source-read", lead)
    app.connect("autodoc-process-docstring", plain)
    return {"parallel_read_safe": True}
