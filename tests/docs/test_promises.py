"""Claims about the guide's table of promises: every row names a test, and that test exists"""

import ast
import re

from tests.docs.guide import GUIDE
from tests.docs.page import REPOSITORY

ROW = re.compile(r"^\|.*\| `(?P<file>tests/[\w/]+\.py)::(?P<test>test_\w+)` \|$")


def test_every_promise_is_shown_by_a_test_that_exists() -> None:
    """The last cell of each row, by file and name."""
    (page,) = [page for page in GUIDE if page.stem == "faults"]
    table = page.read_text(encoding="utf-8").partition("## What is promised")[2]
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 20
    for row in rows:
        found = ROW.match(row)
        assert found is not None, f"it names no test: {row}"
        tree = ast.parse((REPOSITORY / found["file"]).read_text(encoding="utf-8"))
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert found["test"] in names, row
