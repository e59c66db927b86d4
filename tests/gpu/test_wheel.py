"""The stand-in beside the real CuPy, where that is installed: names, arguments, and who makes what"""

import ast
import importlib
import importlib.util
import inspect
import re
from pathlib import Path
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


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("cupy.cuda", "Stream"),
        ("cupy.cuda", "Event"),
        ("cupy.cuda", "Device"),
        ("cupy.cuda.nccl", "NcclCommunicator"),
    ],
)
def test_what_the_stand_in_has_is_there(module: str, name: str) -> None:
    """Every public method and attribute of these classes; what plays the device itself has other names."""
    theirs = getattr(importlib.import_module(module), name)
    known = {"enqueue", "status", "failed"}  # of the stand-in's threads
    path = STAND_IN / Path(*module.split(".")) / "__init__.py"
    source = path if path.exists() else path.parent.with_suffix(".py")
    (ours,) = [
        each for each in ast.parse(source.read_text(encoding="utf-8")).body
        if isinstance(each, ast.ClassDef) and each.name == name
    ]  # fmt: skip
    methods = {each.name for each in ours.body if isinstance(each, ast.FunctionDef)} - known
    public = {each for each in methods if not each.startswith("_") or each.endswith("__")}
    assert public and [each for each in public if not hasattr(theirs, each)] == []


def test_the_functions_of_the_runtime_are_there() -> None:
    from cupy.cuda import runtime  # noqa: PLC0415 - where it is installed

    names = ("getDeviceCount", "getDeviceProperties", "streamQuery", "CUDARuntimeError")
    assert [name for name in names if not hasattr(runtime, name)] == []
