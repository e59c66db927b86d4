"""The machine's C++ compilers: which one there is, its version, the flags it knows"""

import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import final

from d5ray.errors import ConfigurationError, OperatorError

CANDIDATES = ("c++", "g++", "clang++")
FLAGS = ("-O3", "-march=native", "-fopenmp")
ALWAYS = ("-std=c++17", "-fPIC", "-shared", "-fvisibility=hidden")
CUDA_FLAGS = ("-O3", "-Xcompiler=-O3,-march=native,-fopenmp")
CUDA_ALWAYS = ("-std=c++17", "-shared", "-Xcompiler=-fPIC,-fvisibility=hidden")
SECONDS = 600  # that a compiler may take


@final
@dataclass(frozen=True)
class Compiler:
    """A command that compiles C++, with its version as it says it."""

    command: tuple[str, ...]
    version: str

    @property
    def is_cuda(self) -> bool:
        """True for NVIDIA's compiler, which hands flags on to another one."""
        return Path(self.command[-1]).name == "nvcc"

    @property
    def title(self) -> str:
        """The line in the compiler's answer about its version that tells the version."""
        lines = self.version.splitlines() or [self.command[-1]]
        return next((line for line in lines if "release" in line), lines[0])

    def flags(self, wanted: Sequence[str] | None) -> tuple[str, ...]:
        """The flags to compile with: the user's, or those of `FLAGS` that this compiler knows."""
        always: tuple[str, ...] = CUDA_ALWAYS if self.is_cuda else ALWAYS
        if wanted is None:
            chosen = CUDA_FLAGS if self.is_cuda else tuple(flag for flag in FLAGS if self._knows(flag))
        else:
            chosen = tuple(wanted)
        if any(flag.startswith(("-std=", "--std=")) for flag in chosen):
            always = tuple(flag for flag in always if not flag.startswith("-std="))
        return (*always, *chosen)

    def run(self, arguments: Sequence[str], folder: Path) -> "subprocess.CompletedProcess[str]":
        """Compile, in a folder. Raises `OperatorError` if it takes longer than `SECONDS`."""
        try:
            return subprocess.run(
                [*self.command, *arguments],
                cwd=folder,
                env=os.environ | {"LC_ALL": "C.UTF-8"},
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=SECONDS,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as error:
            raise OperatorError(
                f"{self.command[-1]} had not finished after {SECONDS} s, and was ended"
            ) from error

    def _knows(self, flag: str) -> bool:
        return _knows(self.command, flag)


def find(named: str | None = None, *, cuda: bool = False) -> Compiler:
    """The compiler that is named, or `$CXX`, or the first of `CANDIDATES` there is; nvcc for CUDA.

    Raises `ConfigurationError`, saying what to install, where there is none.
    """
    if cuda and named is None:
        named = "nvcc"
    asked = named or os.environ.get("CXX")
    if asked:
        command = shlex.split(asked)
        path = shutil.which(command[0]) if command else None
        if path is None:
            raise ConfigurationError(
                f"the C++ compiler {asked!r} ({_origin(named, cuda)}) was not found: {_install(cuda)}"
            )
        return _compiler((path, *command[1:]))
    for candidate in CANDIDATES:
        if path := shutil.which(candidate):
            return _compiler((path,))
    raise ConfigurationError(
        f"no C++ compiler was found (looked for $CXX, {', '.join(CANDIDATES)}): {_install(cuda)}"
    )


@cache
def processor() -> str:
    """Everything that `-march=native` depends on: the architecture, the processor's model and abilities."""
    lines = []
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
        lines = [line for line in text.splitlines() if re.match(r"(model|flags|Features|CPU part)", line)]
    except OSError:
        lines = [platform.processor()]
    return "\n".join([platform.machine(), *lines])


@cache
def _compiler(command: tuple[str, ...]) -> Compiler:
    try:
        said = subprocess.run(
            [*command, "--version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(f"{shlex.join(command)} cannot be run: {error}") from error
    if said.returncode != 0:
        raise ConfigurationError(
            f"{shlex.join(command)} --version failed with exit code {said.returncode}: "
            "it must be a C++ compiler"
        )
    return Compiler(command, said.stdout.strip())


@cache
def _knows(command: tuple[str, ...], flag: str) -> bool:
    with tempfile.TemporaryDirectory(prefix="d5ray-") as folder:
        arguments = ["-shared", "-fPIC", flag, "-x", "c++", os.devnull, "-o", "empty.so"]
        return Compiler(command, "").run(arguments, Path(folder)).returncode == 0


def _origin(named: str | None, cuda: bool) -> str:
    if cuda and named == "nvcc":
        return "which CUDA sources need"
    return "named in CXX" if named is None else "named as compiler"


def _install(cuda: bool) -> str:
    if cuda:
        return "install NVIDIA's CUDA toolkit, which has nvcc"
    return (
        "install one (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++; macOS: xcode-select "
        "--install; conda: conda install cxx-compiler), or name one in the variable CXX"
    )
