"""Claims about older processors: libraries choose their kernels when told so, and data stay the same"""

import json
import platform
import subprocess
import sys
from typing import Any

import pytest

import d5ray as d5
from tests.beside_kits import cases_of
from tests.conftest import REPOSITORY
from tests.patience import patience
from tests.processor import SETTINGS

CHOSEN = """
import json, numpy, torch, threadpoolctl
numpys = numpy.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
pools = threadpoolctl.threadpool_info()
openblas = [pool["architecture"] for pool in pools if pool["internal_api"] == "openblas"]
print(json.dumps([torch.backends.cpu.get_cpu_capability(), openblas, numpys]))
"""
DATA = """
import json, sys, d5ray
print(json.dumps([d5ray.datasets.load_dataset(name).fingerprint for name in sys.argv[1:]]))
"""
MADE = ("digits", "synthetic", *cases_of("workloads", lambda: ("shapes", "clicks", "keywords", "text")))
x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors have other kernels")


def told(name: str, code: str, *arguments: str) -> list[Any]:
    """What Python says with this processor's kernels."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.processor", name, sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        timeout=patience(120),
        check=True,
    )
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.mark.full
@x86
@pytest.mark.parametrize(
    ("name", "torchs", "openblas"), [("avx2", "AVX2", "Haswell"), ("sse4", "DEFAULT", "Nehalem")]
)
def test_libraries_choose_these_kernels(name: str, torchs: str, openblas: str) -> None:
    """As PyTorch, OpenBLAS and NumPy say themselves."""
    torchs_found, pools, numpys = told(name, CHOSEN)
    assert torchs_found == torchs
    assert pools and set(pools) == {openblas}
    assert set(numpys) <= ({"AVX", "F16C", "FMA3", "AVX2", "X86_V3"} if name == "avx2" else set())


@pytest.mark.full
@x86
@pytest.mark.parametrize("name", SETTINGS)
def test_made_data_are_the_same_with_any_kernels(name: str) -> None:
    """Their fingerprints, in which every bit counts."""
    assert told(name, DATA, *MADE) == [d5.datasets.load_dataset(data).fingerprint for data in MADE]
