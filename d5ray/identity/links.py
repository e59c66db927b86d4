"""A checkout whose links are text files, as git writes them without symbolic links: one error that says so"""

import sys
from collections.abc import Sequence
from os.path import isfile
from types import ModuleType
from typing import Final, final

LINKS: Final = ("actors", "dashboards", "ops", "recipes")  # in d5ray/, to the folders at the top
TODO: Final = (
    "run `git config core.symlinks true && git checkout -- d5ray`, or clone again with `git clone -c "
    "core.symlinks=true`; on Windows switch its developer mode on before"
)


@final
class LinkIsText(ImportError):
    """A package of d5ray cannot be imported, since the link to its folder is a text file."""


def broken(package: str) -> str | None:
    """The error about links in the package's folder that are text files; None if there is none.

    `package`: the path of the folder `d5ray`.
    """
    found = [name for name in LINKS if isfile(f"{package}/{name}")]  # noqa: PTH113 - pathlib is slow to import
    if not found:
        return None
    files = ", ".join(f"d5ray/{name}" for name in found)
    kind = "is a text file, not a link" if len(found) == 1 else "are text files, not links"
    return f"{files} {kind} to the checkout's folders, since git made them without symbolic links: {TODO}"


def check(package: str) -> None:
    """Let every import below a link that is a text file say so; nothing happens where there is none."""
    if said := broken(package):
        sys.meta_path.append(_SaysSo(said))


@final
class _SaysSo:
    """Finds no module: it comes after all finders, and raises for what none of them can find."""

    def __init__(self, said: str) -> None:
        self._said = said

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> None:
        """Raise `LinkIsText` for a package of d5ray behind a link; other modules are for others to find."""
        top, _, name = fullname.partition(".")
        if top == "d5ray" and name in LINKS:
            raise LinkIsText(self._said, name=fullname)
