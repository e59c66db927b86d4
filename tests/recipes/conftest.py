"""What tests of recipes share: a home of their own, and modules that are forgotten"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A D5RAY_HOME with nothing in it."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test loads from its own folder, and where it looked for it, are gone after it."""
    paths = list(sys.path)
    monkeypatch.setenv("PYTHONPATH", os.environ["PYTHONPATH"])
    yield
    for name, module in list(sys.modules.items()):
        if str(tmp_path) in str(getattr(module, "__file__", "")):
            del sys.modules[name]
    sys.path[:] = paths
