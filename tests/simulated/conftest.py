"""A folder of runs for each test of simulations."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def home(own_home: Path) -> Path:
    return own_home
