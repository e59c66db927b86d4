"""The site is whole: no warning, no network, every file, a search, links that lead on"""

import html
import re
from pathlib import Path

import pytest

from docs.tree import folders
from tests.conftest import python
from tests.docs.page import DOCS, REPOSITORY

pytestmark = pytest.mark.full  # the site takes half a minute to build


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make docs` builds."""
    folder = tmp_path_factory.mktemp("site")
    options = ("--fail-on-warning", "--keep-going", "--quiet")
    python("-m", "sphinx", *options, DOCS, folder, cwd=REPOSITORY, seconds=280)
    return folder


def test_every_file_is_on_the_map(site: Path) -> None:
    """With the line that it says of itself, in the section of its folder."""
    text = html.unescape(re.sub(r"<[^>]+>", "", (site / "files.html").read_text(encoding="utf-8")))
    words = " ".join(text.split())
    for folder in folders():
        assert (f"{folder.path}/" if folder.path else folder.about) in words
        for name, line in folder.files.items():
            said = " ".join(line.replace("`", "").split())
            assert f"{name} {said}" in words, (folder.path, name)


def test_every_picture_of_a_page_is_there(site: Path) -> None:
    """Also those that are written as HTML; and no picture of the docs is left over."""
    shown = set()
    for page in site.rglob("*.html"):
        for name in re.findall(r'<img [^>]*src="([^":]+)"', page.read_text(encoding="utf-8")):
            assert (page.parent / name).is_file(), (page.name, name)
            shown.add(Path(name).name)
    assert {path.name for path in (DOCS / "pictures").iterdir()} <= shown


def test_the_site_asks_no_other_machine_for_anything(site: Path) -> None:
    """No script, style, font or picture from elsewhere: it is read offline."""
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for mark in ('src="http', "src='http", 'rel="stylesheet" type="text/css" href="http', "@import"):
            assert mark not in text, f"{page}: {mark}"


def test_links_out_of_the_docs_lead_to_pages_of_the_site(site: Path) -> None:
    """To the figures and to what is promised; a file of the repository alone is named."""
    recipes = (site / "guide" / "recipes.html").read_text(encoding="utf-8")
    memory = (site / "guide" / "microbatches.html").read_text(encoding="utf-8")
    shared = (site / "guide" / "shared_machines.html").read_text(encoding="utf-8")
    anchor = "a-step-in-a-quarter-of-the-memory"
    assert f'href="../results.html#{anchor}"' in memory
    assert f'id="{anchor}"' in (site / "results.html").read_text(encoding="utf-8")
    assert 'href="../security.html"' in shared
    assert "recipes/digits_lenet.py" in recipes and 'href="../../recipes' not in recipes
