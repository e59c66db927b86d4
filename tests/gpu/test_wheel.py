"""The stand-in beside the real CuPy, where that is installed: names, arguments, and who makes what"""

import importlib.util
import inspect
import re
from types import ModuleType

import pytest

from tests.gpu.over_stand_in import STAND_IN

pytest.importorskip("cupy")


def stand_in(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        f"stand_in_{name}", STAND_IN / "cupy" / "cuda" / f"{name}.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def arguments_of(documentation: str) -> list[str]:
    """The names in `NcclCommunicator.send(self, intptr_t sendbuf, size_t count, …)`."""
    inside = re.search(r"\((.*?)\)", documentation)
    assert inside is not None
    return [each.partition("=")[0].split()[-1] for each in inside.group(1).split(",")]


def test_the_calls_of_nccl_are_the_same() -> None:
    from cupy.cuda import nccl  # noqa: PLC0415 - where it is installed

    ours = stand_in("nccl")
    for name, function in inspect.getmembers(ours.NcclCommunicator, inspect.isfunction):
        if not name.startswith("_"):
            theirs = getattr(nccl.NcclCommunicator, name).__doc__
            assert list(inspect.signature(function).parameters) == arguments_of(theirs), name
    constants = [name for name in vars(ours) if name.startswith("NCCL_")]
    assert constants and all(getattr(ours, name) == getattr(nccl, name) for name in constants)
