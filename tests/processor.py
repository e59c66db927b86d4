"""`python -m tests.processor avx2 COMMAND...`: a command with the kernels for older processors"""

import os
import platform
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

# What each library takes it from. TensorFlow's oneDNN operators are on by default where the processor has
# AVX-512 VNNI or newer alone.
SETTINGS = {
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "TF_ENABLE_ONEDNN_OPTS": "0",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
    },
    "sse4": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "TF_ENABLE_ONEDNN_OPTS": "0",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "OPENBLAS_CORETYPE": "Nehalem",
    },
}
AVX512 = ("AVX512F", "AVX512CD", "AVX512BW", "AVX512DQ", "AVX512VL")
WITHOUT = {"avx2": AVX512, "sse4": (*AVX512, "AVX", "AVX2", "FMA")}  # for the C library's mathematics
NUMPYS = {"avx2": ("AVX", "F16C", "FMA3", "AVX2", "X86_V3"), "sse4": ()}  # of those that it was built for


def environment(name: str) -> dict[str, str]:
    """The variables by which libraries choose as on a processor with AVX2 and FMA, or with SSE 4 alone."""
    simd: Any = np.show_config(mode="dicts")["SIMD Extensions"]
    chosen_from = [*simd.get("found", ()), *simd.get("not found", ())]
    return SETTINGS[name] | {
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=" + ",".join(f"-{each}" for each in WITHOUT[name]),
        "NPY_DISABLE_CPU_FEATURES": " ".join(each for each in chosen_from if each not in NUMPYS[name]),
    }


def main(arguments: Sequence[str]) -> None:
    """Become the command."""
    if len(arguments) < 2 or arguments[0] not in SETTINGS:
        sys.exit(f"usage: python -m tests.processor {{{','.join(SETTINGS)}}} COMMAND...")
    if platform.machine() != "x86_64":
        print(f"a {platform.machine()} has no {arguments[0]}: nothing is run", file=sys.stderr)  # noqa: T201
        return
    os.execvpe(arguments[1], list(arguments[1:]), os.environ | environment(arguments[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
