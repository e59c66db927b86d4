"""The GPU path over a strict stand-in for CuPy and NCCL, where there is no GPU"""

import importlib.util
import re

import pytest

from tests.gpu import over_stand_in

no_cupy = pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy itself is there")
# Tests that have cases for CuPy, or for GPUs.
WITH_CASES = (
    "tests/ops",
    "tests/operators/validation",
    "tests/training/optimizers",
    "tests/networks",
    "tests/frameworks",
    "tests/distributed/communicators/test_nccl.py",
)


def passed_over_the_stand_in(*arguments: str) -> int:
    """How many tests pass over the stand-in; the summary of those that do not is the failure."""
    done = over_stand_in.run(*arguments)
    tail = done.stdout[-3000:] + done.stderr[-1000:]
    assert done.returncode == 0, tail
    found = re.search(r"(\d+) passed", tail)
    assert found is not None, tail
    return int(found.group(1))


@no_cupy
def test_agents_train_on_gpus() -> None:
    """What `tests/gpu/device` claims of one agent, several agents, and what goes wrong."""
    assert passed_over_the_stand_in("tests/gpu/device", "-m", "not full") >= 10


@no_cupy
@pytest.mark.full
@pytest.mark.timeout(900)
def test_what_has_cases_for_gpus_passes() -> None:
    """Operators, networks, update rules and NCCL between processes."""
    chosen = ("-m", "not slow and not full", "-k", "cupy or nccl or share_a_gpu")
    assert passed_over_the_stand_in("tests/gpu/device", *WITH_CASES, *chosen) >= 290
