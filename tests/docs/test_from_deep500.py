"""Claims about what has become of Deep500's names: each right-hand name is one, and `d5` says the same"""

import importlib
import re
from functools import reduce
from typing import Any

import pytest

import d5ray
from d5ray.names.deep500 import NAMES, PAGE, successor
from tests.docs.page import REPOSITORY

HERE = {name: successor(name).partition(".")[2] for name in NAMES}
ROWS = [
    (set(re.findall(r"`([\w.]+)`", old)), re.findall(r"`d5(?:ray)?\.([\w.]+)`", new))
    for old, new in re.findall(
        r"^\| (`.*?) \| (.*?) \|", (REPOSITORY / PAGE).read_text(encoding="utf-8"), re.MULTILINE
    )
]


def resolved(name: str) -> Any:
    """The object of a dotted name below the package; what of it is a module is imported."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(["d5ray", *parts[:count]]))
        except ModuleNotFoundError:
            continue
        return reduce(getattr, parts[count:], module)
    return reduce(getattr, parts, d5ray)


@pytest.mark.parametrize("name", sorted({*HERE.values(), *(each for _, new in ROWS for each in new)}))
def test_what_takes_a_names_place_exists(name: str) -> None:
    """In the table that programs use, and on the page."""
    assert resolved(name) is not None


def test_the_table_and_the_page_agree() -> None:
    """Each name of the table has one row on the page, with the same name here."""
    assert {name: [new for old, new in ROWS if name in old] for name in NAMES} == {
        name: [[here]] for name, here in HERE.items()
    }


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_name_of_deep500_says_where_it_went(name: str) -> None:
    """As an AttributeError, so that `hasattr` works."""
    said = rf"^d5ray has no '{name}': Deep500's is d5(ray)?\.{HERE[name]} here, see {PAGE}$"
    with pytest.raises(AttributeError, match=said):
        getattr(d5ray, name)


def test_a_name_that_the_page_keeps_is_one_of_d5rays() -> None:
    """Left and right of a row are the same where the table for programs does not have the name."""
    kept = {
        (name, tuple(each.rpartition(".")[2] for each in new))
        for old, new in ROWS
        for name in old
        if "." not in name and name not in NAMES
    }
    assert len(kept) > 20
    assert [name for name, new in sorted(kept) if name not in new] == []
