"""The GPU path over a strict stand-in for CuPy and NCCL, where there is no GPU"""

import importlib.util
import json
import os
import re
import subprocess
import sys

import pytest

from tests.gpu import over_stand_in

no_cupy = pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy itself is there")
CONFORMANCE = "tests/distributed/communicators/test_conformance.py"
REST, ALL, SHORT = "full and not slow", "not slow", "not slow and not full"
NETWORKS = "tests/networks/microbatch tests/kits/parallel/test_piece_gradients.py " + " ".join(
    f"tests/frameworks/test_{what}.py" for what in ("executors", "fusion", "graph_executors")
)
WITH_CASES = {  # for CuPy, or for GPUs: what is tried, by which tests, and how many must pass at least
    "agents, distributed optimizers, meshes, servers, deaths": ("tests/gpu/device --every-case", "", ALL, 59),
    "communicators": (CONFORMANCE, "nccl", REST, 10),
    "NCCL between processes": ("tests/distributed/communicators/test_nccl.py", "processes", ALL, 2),
    "meshes and checkpoints": ("tests/kits/parallel/test_mesh_resume.py", "cupy", ALL, 3),
    "every update rule": ("tests/training/optimizers", "cupy", ALL, 10),
    "operators": ("tests/ops tests/operators/validation", "cupy", SHORT, 60),  # ONNX has thousands of cases
    "networks": (NETWORKS, "cupy", ALL, 30),
}


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
    """What `tests/gpu/device` claims of one agent, several agents, and what goes wrong; and of NCCL."""
    assert (
        passed_over_the_stand_in(
            "tests/gpu/device", CONFORMANCE, "-m", "not full", "-k", "test_agents or nccl"
        )
        >= 35
    )


@no_cupy
@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("what", WITH_CASES)
def test_what_has_cases_for_gpus_passes(what: str) -> None:
    """Beside what the test above tries; agents with Ray, and servers that die, are in `test_own_gpus`."""
    where, chosen, marks, fewest = WITH_CASES[what]
    assert passed_over_the_stand_in(*where.split(), "-m", marks, "-k", chosen) >= fewest


WITHOUT = """
import sys
for name in ("pytest", "ray", "duckdb", "greenlet"):
    sys.modules[name] = None
from tests.gpu.check import main
sys.exit(main([]))
"""


def test_without_a_gpu_the_checks_say_what_they_would_do() -> None:
    """Also where nothing is installed that a machine which is lent may lack."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        cwd=over_stand_in.REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    stages = re.findall(r"^  (\w+) +at most", done.stdout, re.MULTILINE)
    assert done.returncode == 0 and stages[:3] == ["facts", "one", "agent"] and len(stages) == 11
    wrong = check("rank")
    assert wrong.returncode == 3 and "no stage rank: choose of facts, one" in wrong.stderr


@no_cupy
@pytest.mark.full
@pytest.mark.timeout(600)
def test_the_checks_of_a_machine_with_a_gpu_pass_over_the_stand_in() -> None:
    """All but the facts of a real device; what stands beside PyTorch's own is small, and says a ratio."""
    beside = ("exchange", "steps", "updates")
    stages = ("one", "agent", "ranks", "faults", "train", "rules", *beside)
    done = check(*stages, **over_stand_in.environment(), STAND_IN_GPUS="1")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line for line in lines if not line.get("ok", True)] == [], done.stderr[-2000:]
    assert done.returncode == 0 and {line["stage"] for line in lines} == set(stages)
    ratios = [line["stage"] for line in lines if "ratio" in line]
    assert all(line["ratio"] > 0 and line["turns"] >= 5 for line in lines if "ratio" in line)
    assert {stage: ratios.count(stage) for stage in beside} == {"exchange": 3, "steps": 2, "updates": 3}


def check(*stages: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """`python -m tests.gpu.check`."""
    return subprocess.run(
        [sys.executable, "-m", "tests.gpu.check", *stages],
        cwd=over_stand_in.REPOSITORY, env=os.environ | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
