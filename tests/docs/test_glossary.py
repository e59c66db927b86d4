"""Claims about names in pages: what a glossary or page names is there, what is public is in the reference"""

import pkgutil
import re
from functools import cache

import pytest

from d5ray.names import namespaces
from docs.conf import public_names
from tests.docs.page import REPOSITORY
from tests.test_layout import LINKED, folders

PAGES = ("docs/guide/glossary.md", "docs/architecture.md")


def rows(page: str) -> list[tuple[str, str]]:
    """The word and the place of every row of the page's tables with these three columns."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    tables = re.findall(
        r"^\| word \| meaning \| where \|\n\|---\|---\|---\|\n((?:\|.*\n)+)", text, re.MULTILINE
    )
    found = [
        re.fullmatch(r"\| ([^|]+) \| [^|]+\. \| (`\w+`(?:, `\w+`)*) \|", row)
        for rows in tables
        for row in rows.splitlines()
    ]
    assert all(found)
    return [(row[1], row[2]) for row in found if row]


def places(row: str) -> list[str]:
    """The names in the last column of a row."""
    return re.findall(r"\w+", row)


@cache
def names() -> frozenset[str]:
    """The modules of the product, and what they define or assign at their top."""
    found = set()
    for top in ("d5ray", *LINKED):
        for folder in folders(REPOSITORY / top):
            for file in folder.glob("*.py"):
                text = file.read_text(encoding="utf-8")
                defined = re.findall(r"^(?:class|def) (\w+)", text, re.MULTILINE)
                found.update([file.stem, *defined, *re.findall(r"^(\w+) = ", text, re.MULTILINE)])
    return frozenset(found)


@pytest.mark.parametrize("page", PAGES)
def test_a_words_place_exists(page: str) -> None:
    """Each row names one or more, and a word stands on a page once."""
    found = rows(page)
    assert len(found) > 10
    assert [(word, place) for word, row in found for place in places(row) if place not in names()] == []
    assert len({word for word, _ in found}) == len(found)


def test_every_name_of_d5_in_a_page_is_there() -> None:
    """What stands as `d5.…` or `d5ray.…` between backticks."""
    pages = "".join(
        page.read_text() for page in (*REPOSITORY.glob("*.md"), *REPOSITORY.rglob("docs/**/*.md"))
    )
    named = set(re.findall(r"`d5(?:ray)?\.([A-Za-z_][\w.]*\w)", pages))
    assert len(named) > 100
    for name in named:
        kind, _, field = f"d5ray.{name}".rpartition(".")
        if field not in getattr(pkgutil.resolve_name(kind), "__dataclass_fields__", ()):
            pkgutil.resolve_name(f"d5ray.{name}")


def test_every_public_name_is_in_the_reference() -> None:
    """On one page, by what its directives list; types of other libraries are not."""
    pages = "\n".join(page.read_text() for page in REPOSITORY.glob("docs/reference/*.rst"))
    directives = re.findall(r"^\.\. public:: (.+(?:\n   .+)*)", pages, re.MULTILINE)
    types = {name for name, of in namespaces.table("d5ray").items() if of in ("numpy", "ml_dtypes")}
    listed = [name for given in directives for name in public_names(given)]
    assert sorted(listed) == sorted(namespaces.places().keys() - types)
