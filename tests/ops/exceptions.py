"""The list of ONNX's cases that cannot pass, and what share of the cases passes"""

import tomllib
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.ops.onnx_cases import Case


@cache
def listed(framework: str) -> Mapping[str, str]:
    """The reason for every case that cannot pass under a framework."""
    with Path(__file__).with_suffix(".toml").open("rb") as file:
        return dict(tomllib.load(file)[framework])


def parameters(framework: str, cases: Collection[Case]) -> list[Any]:
    """The cases for `pytest.mark.parametrize`; those listed must fail."""
    reasons = listed(framework)
    return [
        pytest.param(
            case,
            id=case.name,
            marks=pytest.mark.xfail(reason=reasons[case.name], strict=True) if case.name in reasons else (),
        )
        for case in cases
    ]


def passing(framework: str, cases: Collection[Case]) -> int:
    """How many of the cases pass: all that are not listed."""
    return sum(case.name not in listed(framework) for case in cases)
