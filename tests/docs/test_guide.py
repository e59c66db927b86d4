"""Claims about the guide: its Python runs, and its commands are commands"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from d5ray.cli.app import app
from d5ray.cli.dashboard import PAGE
from tests.docs.page import REPOSITORY

GUIDE = sorted((REPOSITORY / "docs" / "guide").glob("*.md"))


def blocks(page: Path, language: str) -> list[str]:
    """The page's blocks of a language."""
    return re.findall(
        rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    """All blocks of a page, one after the other, in an empty folder."""
    code = "\n".join(blocks(page, "python"))
    assert code
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_commands_and_options_of_a_page_exist(page: Path) -> None:
    """Every `d5ray COMMAND --option`, in blocks and in sentences."""
    import typer.main  # noqa: PLC0415

    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    sentences = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    code = "\n".join([*blocks(page, "sh"), *re.findall(r"`([^`\n]*)`", sentences)])
    said = re.findall(r"\bd5ray (?=[a-z])([^\n#]*)", code)
    named = [words.split() for words in said]
    assert named
    for command, *words in named:
        assert command in commands, command
        found = commands[command]
        found = getattr(found, "commands", {}).get(PAGE, found)  # of `d5ray dashboard`
        options = {option for parameter in found.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, (command, words)
