"""The machine and the software a run was measured on, as far as they can be known."""

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path

PACKAGES = (
    "ray", "numpy", "torch", "tensorflow", "tensorflow-cpu", "pyarrow", "pandas", "duckdb", "onnx",
    "networkx", "greenlet", "psutil", "scikit-learn", "cupy-cuda12x", "nvidia-nccl-cu12",
)  # fmt: skip
THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "OMP_PROC_BIND",
    "KMP_AFFINITY", "CUDA_VISIBLE_DEVICES",
)  # fmt: skip

_CPU = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_GPUS = Path("/proc/driver/nvidia/gpus")
_GIT_SECONDS = 5.0


def capture(folder: Path | None = None) -> dict[str, str]:
    """Keys and values for the table `environment`; bytes and counts as decimal numbers.

    folder: a checkout whose commit is recorded, by default the working directory. Nothing is guessed: what
    cannot be known is "unavailable: reason".
    """
    facts: dict[str, Callable[[], str]] = {
        "hostname": platform.node,
        "os": lambda: f"{platform.system()} {platform.release()} {platform.machine()}",
        "distribution": _distribution,
        "kernel": platform.version,
        "python": lambda: sys.version.replace("\n", " "),
        "cpu_model": _cpu_model,
        "cores_physical": lambda: _cores(logical=False),
        "cores_logical": lambda: _cores(logical=True),
        "cores_usable": lambda: str(len(os.sched_getaffinity(0))),
        "memory_bytes": _memory,
        "container_cpu": lambda: _limit("cpu.max", "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"),
        "container_memory": lambda: _limit("memory.max", "memory/memory.limit_in_bytes"),
        "cpu_governor": lambda: _CPU.read_text().strip(),
        "gpus": _gpus,
        "git_commit": lambda: _git(folder, "rev-parse", "HEAD"),
        "git_dirty": lambda: "yes" if _git(folder, "status", "--porcelain") else "no",
    }
    known = {key: _or_reason(fact) for key, fact in facts.items()}
    known |= {f"package_{name}": _or_reason(partial(metadata.version, name)) for name in PACKAGES}
    return known | {name: os.environ.get(name, "unavailable: not set") for name in THREAD_VARIABLES}


def _or_reason(fact: Callable[[], str]) -> str:
    try:
        return fact() or "unavailable: empty"
    except metadata.PackageNotFoundError:
        return "unavailable: not installed"
    except (OSError, ValueError, AttributeError, ImportError, subprocess.SubprocessError) as error:
        return f"unavailable: {error}"


def _distribution() -> str:
    return platform.freedesktop_os_release().get("PRETTY_NAME", "")


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    raise ValueError("/proc/cpuinfo names no model")


def _cores(*, logical: bool) -> str:
    import psutil  # noqa: PLC0415 (only those who ask for the environment need it)

    count = psutil.cpu_count(logical=logical)
    if count is None:
        raise ValueError("the system does not tell")
    return str(count)


def _memory() -> str:
    import psutil  # noqa: PLC0415

    return str(psutil.virtual_memory().total)


def _limit(version_2: str, *version_1: str) -> str:
    """The limit of this process's control group as the kernel writes it, version 2 ("max" is none) or 1."""
    root = Path("/sys/fs/cgroup")
    groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    own = next((path for number, _, path in groups if number == "0"), "/")
    for files in (
        [root / own.lstrip("/") / version_2],
        [root / version_2],
        [root / name for name in version_1],
    ):
        if all(file.is_file() for file in files):
            return " ".join(file.read_text().strip() for file in files)
    raise ValueError("no control group tells")


def _gpus() -> str:
    """The models that the NVIDIA driver lists."""
    if not _GPUS.is_dir():
        raise ValueError("no NVIDIA driver is loaded")
    models = []
    for card in sorted(_GPUS.iterdir()):
        lines = (card / "information").read_text().splitlines()
        models += [line.partition(":")[2].strip() for line in lines if line.startswith("Model")]
    return ", ".join(models) or "none"


def _git(folder: Path | None, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=_GIT_SECONDS, check=False
    )
    if done.returncode:
        raise ValueError(done.stderr.strip().splitlines()[0] if done.stderr.strip() else "git failed")
    return done.stdout.strip()
