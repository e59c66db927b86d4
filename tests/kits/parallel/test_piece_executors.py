"""Claims about executors of pieces: what they keep, where their buffers are, what they refuse"""

import numpy as np
import pytest

from d5ray.errors import ConfigurationError
from d5ray.kits.parallel.stages.balanced import Balanced
from d5ray.kits.parallel.stages.cut import Cut
from d5ray.kits.parallel.stages.cutting import pieces
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from tests.frameworks.small_networks import FRAMEWORKS, case, error, executor
from tests.kits.parallel.chained import Chain, chain, check_same, divided, place, tied_network, uncut

every_framework = pytest.mark.parametrize("framework", FRAMEWORKS)
quick_frameworks = pytest.mark.parametrize("framework", ["numpy", "torch"])


@quick_frameworks
@pytest.mark.parametrize("name", ["lenet", "resnet8"])
def test_recomputation_gives_the_same_bits(framework: str, name: str) -> None:
    """Losses, gradients, and statistics, which are updated once; and less is kept."""
    made = case(name)
    parts = divided(made.given, 3, 3)
    plain, again = (chain(framework, made.network, Balanced(2), recompute=each) for each in (False, True))
    assert plain.train(*parts) == again.train(*parts)
    for found, expected in ((again.gradients(), plain.gradients()), (again.state(), plain.state())):
        for key, value in expected.items():
            np.testing.assert_array_equal(found[key], value)
    assert sum(each.peak_kept_bytes for each in again.places) < sum(
        each.peak_kept_bytes for each in plain.places
    )


@quick_frameworks
def test_kept_bytes_are_those_of_the_schedule(framework: str) -> None:
    """All forwards first keep every micro-batch; recomputing, they keep inputs and one whole."""
    made = case("mlp", "float64")
    parts = divided(made.given, 2, 2, 2)

    def peaks(recompute: bool, at_once: int) -> list[int]:
        under_test = chain(framework, made.network, Balanced(2), recompute=recompute)
        under_test.begin()
        for first in range(0, 3, at_once):
            micros = range(first, min(3, first + at_once))
            for micro in micros:
                under_test.forward(micro, parts[micro])
            for micro in micros:
                under_test.backward(micro, 1 / 3)
        assert [each.kept_bytes for each in under_test.places] == [0, 0]
        return [each.peak_kept_bytes for each in under_test.places]

    one = peaks(False, 1)
    assert all(one)
    assert sum(one) < sum(value.nbytes for value in made.network.parameters.values())  # which do not count
    assert peaks(False, 3) == [3 * each for each in one]
    assert peaks(False, 2) == [2 * each for each in one]
    known = [piece.network.inputs.values() for piece in pieces(made.network, Balanced(2))]
    inputs = [
        sum(TensorDescriptor(kind.dtype, [2, *(kind.shape or ())[1:]]).bytes for kind in each)
        for each in known
    ]
    assert inputs[0] == 2 * 64 * 8
    assert peaks(True, 3) == [2 * own + full for own, full in zip(inputs, one, strict=True)]
    assert peaks(True, 1) == one


@every_framework
def test_an_evaluation_takes_running_statistics(framework: str) -> None:
    """Those of the batch are for training: the pieces give the scores of the network uncut."""
    made = case("resnet8", "float64")
    scores = executor(framework, made.network).inference({"input": made.inputs})["output"]
    found = chain(framework, made.network, Balanced(2)).inference({"input": made.inputs})["output"]
    assert error(found, scores) < 1e-10


@quick_frameworks
def test_a_place_may_hold_several_pieces(framework: str) -> None:
    """Interleaved: the first and third of three, with one pair of buffers; a tied table is there once."""
    network, batch = tied_network()
    first, second, third = pieces(network, Cut(("multiply", "go_around")))
    under_test = Chain([place(framework, [first, third]), place(framework, [second])])
    both = under_test.places[0]
    assert [slot.name for slot in both.slots] == ["table"] and both.gradients.shape == (36,)
    parts = divided(batch, 2, 4)
    expected = uncut(framework, network, batch)
    check_same(under_test, under_test.train(*parts), expected, 1e-10)


@quick_frameworks
def test_a_broken_pass_leaves_nothing(framework: str) -> None:
    """What its forwards have kept is let go where the next one begins, whose gradients are its own."""
    made = case("mlp", "float64")
    under_test = chain(framework, made.network, Balanced(2))
    under_test.begin()
    under_test.forward(0, made.given)
    under_test.forward(1, made.given)
    under_test.backward(1, 1.0)
    assert any(each.kept_bytes for each in under_test.places)
    under_test.begin()
    assert not any(each.kept_bytes for each in under_test.places)
    expected = uncut(framework, made.network, made.given)
    check_same(under_test, under_test.train(made.given), expected, 1e-10)


@every_framework
def test_calls_that_do_not_fit_are_refused(framework: str) -> None:
    """Each by what was found and what is expected."""
    network, batch = tied_network()
    first, second = pieces(network, Cut(("go_around",)))
    one, two = place(framework, [first]), place(framework, [second])
    tokens = one.put(batch["input"])
    one.begin_pass()
    two.begin_pass()
    with pytest.raises(ConfigurationError, match="chunk is 1, and this stage holds 1"):
        one.forward(1, 0, {"input": tokens})
    with pytest.raises(ConfigurationError, match=r"has no input 'inputs': did you mean 'input'"):
        one.forward(0, 0, {"inputs": tokens})
    with pytest.raises(ConfigurationError, match=r"needs the input 'hidden' \(float64 .*, of piece 0\)"):
        two.forward(0, 0, {"labels": tokens})
    with pytest.raises(ConfigurationError, match=r"'input' is float64 \(6,\), expected int64 \(batch,\)"):
        one.forward(0, 0, {"input": one.put(np.zeros(6))})
    with pytest.raises(ConfigurationError, match=r"'input' is a str, expected an array of"):
        one.forward(0, 0, {"input": "tokens"})
    with pytest.raises(ConfigurationError, match="of which nothing is kept: forward comes first"):
        one.backward(0, 0, {})
    one.forward(0, 0, {"input": tokens})
    with pytest.raises(ConfigurationError, match="micro-batch 0 was called twice"):
        one.forward(0, 0, {"input": tokens})
    with pytest.raises(ConfigurationError, match=r"lacks the gradient of 'vectors', which piece 1 read"):
        one.backward(0, 0, {})
    with pytest.raises(ConfigurationError, match=r"gives no tensor 'loss' that is differentiated"):
        one.backward(0, 0, {"loss": 1.0})
    for wrong in ([], [second, first], [first, first]):
        with pytest.raises(ConfigurationError, match=r"at least one piece|each once and in their order"):
            place(framework, wrong)
