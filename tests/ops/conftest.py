"""What the tests of operators share: the array modules"""

from typing import Any

import numpy as np
import pytest


@pytest.fixture(scope="session", params=["numpy", "cupy"])
def xp(request: pytest.FixtureRequest) -> Any:
    """An array module; CuPy is skipped where it is not installed, or there is no GPU."""
    if request.param == "numpy":
        return np
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    try:
        cupy.zeros(1)
    except cupy.cuda.runtime.CUDARuntimeError:
        pytest.skip("no GPU")
    return cupy
