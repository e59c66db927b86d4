"""The libraries that a process computes with: BLAS, threads, and the frameworks that it has loaded"""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "OMP_PROC_BIND",
    "KMP_AFFINITY", "CUDA_VISIBLE_DEVICES",
)  # fmt: skip


def computing() -> dict[str, str]:
    """Keys and values for the table `environment`, of this process; of an agent, what its steps run with.

    Nothing is loaded for it: of a framework that this process does not use there is nothing to say.
    """
    facts: dict[str, Callable[[], str]] = {"blas_numpy": _numpy_blas, "thread_pools": _thread_pools}
    torch = sys.modules.get("torch")
    if torch is not None:
        facts |= _of_torch(torch)
    return thread_settings() | {name: or_reason(fact) for name, fact in facts.items()}


def thread_settings() -> dict[str, str]:
    """The variables of this process that say how many threads libraries take, and which devices."""
    return {name: os.environ.get(name, "unavailable: not set") for name in THREAD_VARIABLES}


def _numpy_blas() -> str:
    """`scipy-openblas 0.3.31`: what NumPy was built with."""
    import numpy as np  # noqa: PLC0415

    built: Any = np.show_config(mode="dicts")
    blas = built["Build Dependencies"]["blas"]
    return f"{blas['name']} {blas['version']}"


def _thread_pools() -> str:
    """Every BLAS and OpenMP library that is loaded: version, threads, the kernels that it chose."""
    import threadpoolctl  # noqa: PLC0415

    pools = []
    for pool in threadpoolctl.threadpool_info():
        chosen = f" for {pool['architecture']}" if pool.get("architecture") else ""
        version = f" {pool['version']}" if pool.get("version") else ""
        pools.append(f"{pool['internal_api']}{version}{chosen}, threads: {pool['num_threads']}")
    return "; ".join(sorted(pools)) or "none"


def _of_torch(torch: Any) -> dict[str, Callable[[], str]]:
    return {
        "torch_blas": lambda: _setting(torch.__config__.show(), "BLAS_INFO"),
        "torch_onednn": lambda: _line(torch.__config__.show(), "MKL-DNN"),
        "torch_cpu_capability": lambda: torch.backends.cpu.get_cpu_capability(),
        "torch_threads": lambda: (
            f"{torch.get_num_threads()} within operations, {torch.get_num_interop_threads()} between them"
        ),
        "torch_cuda": lambda: torch.version.cuda or "unavailable: built without",
        "torch_cudnn": lambda: str(torch.backends.cudnn.version() or "unavailable: built without"),
        "torch_gpus": lambda: _torch_gpus(torch),
        "torch_deterministic": lambda: str(torch.are_deterministic_algorithms_enabled()),
        "torch_float32_matmul_precision": lambda: str(torch.get_float32_matmul_precision()),
    }


def _torch_gpus(torch: Any) -> str:
    """The model and memory of each GPU that the process sees."""
    if not torch.cuda.is_available():
        return "unavailable: PyTorch finds none"
    found = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return "; ".join(f"{gpu.name}, {gpu.total_memory} bytes" for gpu in found)


def _setting(text: str, name: str) -> str:
    """The value of `name=value` in PyTorch's description of itself."""
    _, equals, rest = text.partition(f"{name}=")
    if not equals:
        raise ValueError(f"PyTorch does not tell its {name}")
    return rest.partition(",")[0].strip()


def _line(text: str, word: str) -> str:
    found = [line.strip(" -") for line in text.splitlines() if word in line]
    if not found:
        raise ValueError(f"PyTorch does not tell of {word}")
    return found[0]


def or_reason(fact: Callable[[], str]) -> str:
    """The fact as text, or "unavailable: reason"; nothing is guessed."""
    try:
        return fact() or "unavailable: empty"
    except metadata.PackageNotFoundError:
        return "unavailable: not installed"
    except (
        OSError, ValueError, AttributeError, ImportError, KeyError, RuntimeError, subprocess.SubprocessError,
    ) as error:  # fmt: skip
        return f"unavailable: {error}"
