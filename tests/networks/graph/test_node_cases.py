"""Every case of a node that the ONNX project has, as a network under three frameworks, and their page"""

from functools import cache

import pytest

from d5ray.frameworks.numpy import from_onnx
from d5ray.networks.network import Network
from tests.networks.graph.node_cases import (
    FRAMEWORKS,
    PAGE,
    Verdict,
    _difference,
    operator_of,
    page,
    verdicts,
)
from tests.ops.onnx_cases import _collected

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]


@cache
def found(framework: str) -> list[Verdict]:
    pytest.importorskip(framework)
    return list(verdicts(framework))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_each_case_is_right_or_refused_before_it_runs(framework: str) -> None:
    """None is wrong, none ends in another error; what is refused is named, with the operator."""
    bad = [each for each in found(framework) if each.kind not in ("right", "refused")]
    assert not bad, "\n".join(map(str, bad))
    nameless = [each for each in found(framework) if each.kind == "refused" and not operator_of(each)]
    assert not nameless, "\n".join(map(str, nameless))


def test_the_page_shows_what_is_refused() -> None:
    """python -m tests.networks.graph.node_cases writes it."""
    assert PAGE.read_text(encoding="utf-8") == page({each: found(each) for each in FRAMEWORKS})


def test_a_value_that_is_wrong_is_seen() -> None:
    """The comparison is not blind: what is a hundredth off is wrong."""
    case = next(each for each in _collected() if each.name == "test_softplus")
    (inputs, outputs), *_ = case.data_sets
    network = Network.from_onnx(case.model)
    executor = from_onnx(network)
    assert not _difference(case, executor, False, inputs, outputs)
    assert _difference(case, executor, False, inputs, [1.01 * outputs[0]]) == "values"
