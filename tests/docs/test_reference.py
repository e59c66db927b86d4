"""The site is whole: Sphinx builds it without a warning and a network, and every public name is on it once"""

import subprocess
import sys
from pathlib import Path

import pytest
from sphinx.util.inventory import InventoryFile

import d5ray
from tests.docs.page import DOCS, REPOSITORY
from tests.patience import patience

TYPES = {name for name, module in d5ray._NAMES.items() if module in ("numpy", "ml_dtypes")}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make docs` builds."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet"]
    done = subprocess.run(
        [*command, str(DOCS), str(folder)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=patience(280),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    """As the table of the package has them; a name twice would have been a warning."""
    with (site / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", lambda _, target: target)
    names = {name for kind, found in inventory.items() if kind.startswith("py:") for name in found}
    assert {f"d5ray.{name}" for name in set(d5ray.__all__) - TYPES} - names == set()


def test_tables_and_formulas_of_docstrings_stay_as_they_are(site: Path) -> None:
    """The parameters of an Experiment in columns, a rule's formula with its signs."""
    running = (site / "reference" / "running.html").read_text(encoding="utf-8")
    rows = str(d5ray.Experiment.__doc__).splitlines()
    (row,) = (each.strip() for each in rows if each.strip().startswith("batch_size "))
    assert "  " in row and row.partition(";")[0] in running
    level2 = (site / "reference" / "level2.html").read_text(encoding="utf-8")
    assert "v ← μ v + g;  x ← x − η v" in level2


def test_the_site_asks_no_other_machine_for_anything(site: Path) -> None:
    """No script, style, font or picture from elsewhere: it is read offline."""
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for mark in ('src="http', "src='http", 'rel="stylesheet" type="text/css" href="http', "@import"):
            assert mark not in text, f"{page}: {mark}"
