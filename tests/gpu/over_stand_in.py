"""`python -m tests.gpu.over_stand_in TESTS…`: pytest with the stand-in for CuPy and NCCL in the way"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

STAND_IN = Path(__file__).parent / "stand_in"
REPOSITORY = Path(__file__).parents[2]


def environment() -> dict[str, str]:
    """The variables by which programs find the stand-in."""
    return {"PYTHONPATH": os.pathsep.join([str(STAND_IN), str(REPOSITORY)]), "OMP_NUM_THREADS": "1"}


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """pytest on these tests in a process of its own, where two GPUs seem to be there."""
    own = os.environ | environment() | {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
    words = ["-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(
        [sys.executable, *words], cwd=REPOSITORY, env=own, capture_output=True, text=True, check=False
    )


if __name__ == "__main__":
    if importlib.util.find_spec("cupy") is not None:
        sys.exit("CuPy is installed: it is tried itself, and not the stand-in")
    done = run(*sys.argv[1:])
    sys.stdout.write(done.stdout + done.stderr)
    sys.exit(done.returncode)
