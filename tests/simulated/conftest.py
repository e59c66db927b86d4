"""A folder of runs for each test of simulations."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path / "home"))
