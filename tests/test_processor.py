"""Claims about `tests.processor`: libraries choose the kernels that it says"""

import json
import platform
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from tests.patience import patience

CHOSEN = """
import json, numpy, torch, threadpoolctl
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
numpys = [name for name in __cpu_dispatch__ if __cpu_features__[name]]
pools = threadpoolctl.threadpool_info()
openblas = [pool["architecture"] for pool in pools if pool["internal_api"] == "openblas"]
print(json.dumps([torch.backends.cpu.get_cpu_capability(), openblas, numpys]))
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors have other kernels")
@pytest.mark.parametrize(
    ("name", "torchs", "openblas"), [("avx2", "AVX2", "Haswell"), ("sse4", "DEFAULT", "Nehalem")]
)
def test_libraries_choose_these_kernels(name: str, torchs: str, openblas: str) -> None:
    """As PyTorch, OpenBLAS and NumPy say themselves."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.processor", name, sys.executable, "-c", CHOSEN],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        timeout=patience(60),
        check=True,
    )
    found = json.loads(done.stdout)
    assert found[:2] == [torchs, [openblas] * len(found[1])] and found[1]
    assert found[2] == [each for each in found[2] if name == "avx2" and each in ("AVX2", "FMA3", "X86_V3")]
