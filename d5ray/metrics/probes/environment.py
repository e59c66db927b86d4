"""The machine and the software a run was measured on, as far as they can be known."""

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from importlib import metadata
from pathlib import Path

from d5ray.metrics.probes.numeric_libraries import or_reason, thread_settings

PACKAGES = (
    "d5ray", "ray", "numpy", "torch", "tensorflow", "tensorflow-cpu", "pyarrow", "pandas", "duckdb", "onnx",
    "networkx", "greenlet", "psutil", "scikit-learn", "scipy", "threadpoolctl", "cupy-cuda13x",
    "cupy-cuda12x", "nvidia-nccl-cu13", "nvidia-nccl-cu12", "jax", "flax", "equinox", "optax",
)  # fmt: skip
FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "asimd", "sve", "hypervisor")

_CPUS = Path("/sys/devices/system/cpu")
_NVIDIA = Path("/proc/driver/nvidia")
_GIT_SECONDS = 5.0
_version = cache(metadata.version)  # what is loaded stays so, and to read them takes 10 ms


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
        "cpu_flags": _cpu_flags,
        "cpu_mhz_most": lambda: str(int((_CPUS / "cpu0/cpufreq/cpuinfo_max_freq").read_text()) // 1000),
        "cpu_boost": _boost,
        "cores_physical": lambda: _cores(logical=False),
        "cores_logical": lambda: _cores(logical=True),
        "cores_usable": lambda: str(len(os.sched_getaffinity(0))),
        "numa_nodes": lambda: str(len(list(Path("/sys/devices/system/node").glob("node[0-9]*")))),
        "load_average": lambda: f"{os.getloadavg()[0]:.2f}",
        "cache_bytes": _cache,
        "memory_bytes": _memory,
        "swap_bytes": _swap,
        "huge_pages": lambda: Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text().strip(),
        "container": _container,
        "container_cpuset": lambda: _limit("cpuset.cpus.effective", "cpuset/cpuset.cpus"),
        "container_cpu": lambda: _limit("cpu.max", "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"),
        "container_memory": lambda: _limit("memory.max", "memory/memory.limit_in_bytes"),
        "cpu_governor": _governor,
        "gpus": lambda: _gpus("Model"),
        "gpu_uuids": lambda: _gpus("GPU UUID"),
        "gpu_driver": lambda: (_NVIDIA / "version").read_text().splitlines()[0].strip(),
        "git_commit": lambda: _git(folder, "rev-parse", "HEAD"),
        "git_dirty": lambda: "yes" if _git(folder, "status", "--porcelain") else "no",
    }
    known = {key: or_reason(fact) for key, fact in facts.items()}
    known |= {f"package_{name}": or_reason(partial(_version, name)) for name in PACKAGES}
    return known | thread_settings()


def d5ray_version() -> str:
    """The version of d5ray that is installed."""
    try:
        return metadata.version("d5ray")
    except metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return "0+checkout"


def _distribution() -> str:
    return platform.freedesktop_os_release().get("PRETTY_NAME", "")


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    raise ValueError("/proc/cpuinfo names no model")


def _cpu_flags() -> str:
    """The FLAGS that the processor has."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("flags", "Features")):
            found = set(line.partition(":")[2].split())
            return " ".join(flag for flag in FLAGS if flag in found) or "none of " + " ".join(FLAGS)
    raise ValueError("/proc/cpuinfo names no flags")


def _governor() -> str:
    """The governors of all processors; usually one."""
    found = {path.read_text().strip() for path in _CPUS.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    if not found:
        raise ValueError("the system sets no frequency")
    return ", ".join(sorted(found))


def _boost() -> str:
    """ "on" or "off": the clock may go beyond its base, or not."""
    intel, others = _CPUS / "intel_pstate/no_turbo", _CPUS / "cpufreq/boost"
    if intel.is_file():
        return "off" if intel.read_text().strip() == "1" else "on"
    return "on" if others.read_text().strip() == "1" else "off"


def _container() -> str:
    """The kind of container that this process runs in; empty if none is known."""
    for path, name in ((Path("/.dockerenv"), "docker"), (Path("/run/.containerenv"), "podman")):
        if path.exists():
            return name
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    if "SINGULARITY_NAME" in os.environ or "APPTAINER_NAME" in os.environ:
        return "apptainer"
    return "none found"


def _cores(*, logical: bool) -> str:
    import psutil  # noqa: PLC0415 (only those who ask for the environment need it)

    count = psutil.cpu_count(logical=logical)
    if count is None:
        raise ValueError("the system does not tell")
    return str(count)


def _cache() -> str:
    """The largest cache for data that one core has, alone or with others."""
    sizes = [
        int((each / "size").read_text().strip().removesuffix("K")) * 1024
        for each in (_CPUS / "cpu0/cache").glob("index[0-9]*")
        if (each / "type").read_text().strip() != "Instruction"
    ]
    return str(max(sizes)) if sizes else "unavailable: the system names no cache"


def _memory() -> str:
    import psutil  # noqa: PLC0415

    return str(psutil.virtual_memory().total)


def _swap() -> str:
    import psutil  # noqa: PLC0415

    return str(psutil.swap_memory().total)


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


def _gpus(what: str) -> str:
    """What the NVIDIA driver says of each of its GPUs, in the order of their buses, by which NVML counts."""
    if not (_NVIDIA / "gpus").is_dir():
        raise ValueError("no NVIDIA driver is loaded")
    found = []
    for card in sorted((_NVIDIA / "gpus").iterdir()):
        lines = (card / "information").read_text().splitlines()
        found += [line.partition(":")[2].strip() for line in lines if line.startswith(what)]
    return ", ".join(found) or "none"


def _git(folder: Path | None, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=_GIT_SECONDS, check=False
    )
    if done.returncode:
        raise ValueError(done.stderr.strip().splitlines()[0] if done.stderr.strip() else "git failed")
    return done.stdout.strip()
