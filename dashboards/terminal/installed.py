"""Findings of `d5ray doctor` on packages: those that are there, or missing for which feature; the system"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from typing import Final

GOOD, WARN, BAD = "ok", "note", "missing"
SMALL_TORCH: Final = "install PyTorch's build for CPUs: pytorch.org/get-started/locally shows the command"
CORE = (  # what training needs
    "ray", "numpy", "torch", "pyarrow", "pandas", "duckdb", "onnx", "networkx", "greenlet", "scikit-learn",
)  # fmt: skip
EXTRAS = {  # of d5ray -> its distributions, of which one is enough, and what it is for
    "tensorflow": (("tensorflow-cpu", "tensorflow"), "networks and operators under TensorFlow"),
    "jax": (("jax",), "models of Flax and Equinox, and functions of JAX"),
    "cuda": (("cupy-cuda13x",), "CuPy arrays and NCCL exchange between GPUs, with CUDA 13"),
    "cuda12": (("cupy-cuda12x",), "the same with CUDA 12"),
    "dashboard": (("dash",), "the live page, reports and heat maps"),
    "export": (("tensorboard",), "d5ray export --to tensorboard, and mlflow"),
    "huggingface": (("datasets",), "data sets of Hugging Face's"),
    "rl": (("gymnasium",), "environments such as cartpole's"),
    "tune": (("optuna",), "searchers for d5.tune beside Ray Tune's own"),
    "text": (("sacrebleu",), "tokens of byte pairs, and BLEU"),
    "mpi": (("mpi4py",), "OpenMPI as a peer in allreduce_speed"),
    "dev": (("pytest",), "the tests"),
}


@dataclass(frozen=True)
class Finding:
    """One line: of what, how it is, and what to do where something is missing."""

    topic: str
    state: str  # ok, note or missing
    text: str
    advice: str = ""


def packages(gpus: bool) -> list[Finding]:
    """A finding for each package. gpus: whether this machine has any, for which PyTorch brings CUDA along."""
    found = [_core(name) for name in CORE]
    if torch := cuda_build(gpus, (str(each.metadata["Name"]) for each in metadata.distributions())):
        found.append(torch)
    return found + [_extra(name, names, purpose) for name, (names, purpose) in EXTRAS.items()]


def cuda_build(gpus: bool, names: Iterable[str]) -> Finding | None:
    """A note where these distributions have CUDA's libraries and no GPU uses them; else None."""
    libraries = sorted(
        name for name in set(names) if name.lower().startswith("nvidia-") and "ml-py" not in name
    )
    if gpus or not libraries:
        return None
    return Finding(
        "PyTorch for CPUs", WARN,
        f"{len(libraries)} packages of CUDA take several gigabytes, and this machine has no GPU",
        f"pip uninstall -y torch {' '.join(libraries)}; {SMALL_TORCH}",
    )  # fmt: skip


def system(platform: str = sys.platform) -> Finding:
    """The operating system, and what runs on it."""
    if platform == "linux":
        return Finding("system", GOOD, "Linux: everything runs")
    if platform == "darwin":
        return Finding(
            "system", WARN,
            "macOS: simulations and agents over sockets; shared memory between agents, energy and the peak "
            "memory of control groups need Linux",
        )  # fmt: skip
    return Finding(
        "system", BAD, f"{platform}: d5ray runs on Linux, and in parts on macOS", "use WSL or a container"
    )


def _core(name: str) -> Finding:
    try:
        return Finding(name, GOOD, metadata.version(name))
    except metadata.PackageNotFoundError:
        advice = SMALL_TORCH if name == "torch" else f"pip install '{name}'"
        return Finding(name, BAD, "not installed", advice)


def _extra(extra: str, names: tuple[str, ...], purpose: str) -> Finding:
    for name in names:
        try:
            return Finding(f"extra {extra}", GOOD, f"{name} {metadata.version(name)}, for {purpose}")
        except metadata.PackageNotFoundError:
            continue
    return Finding(
        f"extra {extra}", WARN, f"not installed, only needed for {purpose}", f"pip install 'd5ray[{extra}]'"
    )
