"""The lessons are true: done from top to bottom in an empty folder, they show what they say"""

import re
from pathlib import Path

import pytest

from tests.conftest import python
from tests.docs.lessons import alike, differences, follow, same
from tests.docs.page import DOCS, LESSONS, REPOSITORY, Page, pages

LONG = ("cluster", "contest", "distributed", "server", "thousand_agents")  # Ray, or a thousand agents
LINK = re.compile(r"\]\((?!https?:|#)(?P<path>[^)#]+)\)")
MOST_BYTES = 200_000  # of a picture


@pytest.mark.full
@pytest.mark.parametrize(
    "path", [pytest.param(p, id=p.stem, marks=[pytest.mark.slow] * (p.stem in LONG)) for p in pages()]
)
@pytest.mark.timeout(900)
def test_a_lesson_shows_what_its_commands_show(path: Path, tmp_path: Path) -> None:
    """Every file is saved and every command run; `make docs-outputs` writes anew what is shown."""
    page = Page.read(path)
    assert differences(follow(page, tmp_path)) == []
    for name in page.pictures:
        assert _words(tmp_path / name) == _words(LESSONS / "pictures" / name)


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.stem)
def test_a_lesson_has_its_parts_and_leads_somewhere(path: Path) -> None:
    """What one learns, what next, exercises; links and pictures that exist; all its commands are shown."""
    page = Page.read(path)
    for part in ("**You learn**", "## What next", "## Exercises"):
        assert part in page.text
    assert sum(body.count("\n$ ") + body.startswith("$ ") for body in _sessions(page)) == len(page.commands)
    for link in LINK.finditer(page.text):
        assert (LESSONS / link["path"]).is_file(), link["path"]
    assert f"[{_title(page)}](" not in page.text
    assert f"(lessons/{path.name})" in (DOCS / "index.md").read_text(encoding="utf-8")
    assert f"(docs/lessons/{path.name})" in (REPOSITORY / "README.md").read_text(encoding="utf-8")


def test_every_picture_is_small_and_shown() -> None:
    """None is left over from a page that has changed."""
    shown = {name for path in pages() for name in Page.read(path).pictures}
    there = {path.name: path.stat().st_size for path in (LESSONS / "pictures").iterdir()}
    assert set(there) == shown
    assert {name: size for name, size in there.items() if size > MOST_BYTES} == {}


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.stem)
def test_the_files_of_a_lesson_are_written_as_the_project_is(path: Path, tmp_path: Path) -> None:
    """ruff's formatting and its rules about mistakes, imports and line length."""
    for file in Page.read(path).files:
        if file.name.endswith(".py"):
            (tmp_path / file.name).write_text(file.text, encoding="utf-8")
    options = ["--config", str(REPOSITORY / "pyproject.toml")]
    chosen = ["--select", "E,F,W,I,B,UP", "--config", 'lint.isort.known-first-party=["d5ray"]']
    for command in (["check", *options, *chosen], ["format", "--check", *options]):
        python("-m", "ruff", *command, tmp_path)


# -- the comparison itself -------------------------------------------------------------------------------


def test_numbers_are_compared_as_the_pages_say() -> None:
    """Words and integers must be equal, decimals to 2 %; with `# numbers vary` the words alone."""
    run = "digits-20261120-193654-7f3a91c2"
    assert same(f"{run} loss 0.512", "digits-20270101-000000-00000000 loss 0.513")
    assert same("apart 1.2e-08", "apart 1.21e-08")
    assert not same("loss 0.512", "loss 0.551")
    assert not same("20 steps", "21 steps")
    assert not same("PASS 0.5", "FAIL 0.5")
    assert alike("a   0.1 s\n1,000 steps", "a 12.5 s\n99 steps")
    assert not alike("PASS 0.1", "FAIL 0.1")


def _sessions(page: Page) -> list[str]:
    return re.findall(r"^```console\n(.*?)^```$", page.text, re.MULTILINE | re.DOTALL)


def _title(page: Page) -> str:
    return page.text.partition("\n")[0].removeprefix("# ")


def _words(picture: Path) -> list[str]:
    """What is written in an SVG, numbers left out."""
    texts = re.findall(r">([^<>]+)</(?:text|tspan|title)>", picture.read_text(encoding="utf-8"))
    return [re.sub(r"[\d.,×⁻⁰¹²³⁴-⁹−-]+", "#", text).strip() for text in texts]
