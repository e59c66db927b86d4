"""Claims about native models with the two methods of a GraphExecutor: called as they are, no conversion"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import d5ray.frameworks.torch as d5fw
from d5ray.errors import ConfigurationError
from d5ray.networks.events.collect_values import CollectValues
from tests.frameworks.small_networks import LOSS, autograd, case


class Two(nn.Module):
    """Two inputs, outputs by name, and a loss of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.spare = nn.Parameter(torch.tensor(1.0))

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> dict[str, torch.Tensor]:
        product = left * right * self.gain
        return {"product": product, "cost": product.square().sum()}


@pytest.mark.parametrize("name", ["resnet8", "transformer"])
def test_a_module_computes_what_it_computes(name: str) -> None:
    """Outputs, loss and gradients are autograd's to the last bit; the module is the user's own, no copy."""
    made = case(name)
    loss, scores, gradients = autograd(made)
    module = made.twin()
    under_test = d5fw.from_native(module, LOSS)
    assert under_test.module is module
    outputs = under_test.inference_and_backprop({under_test.inputs[0]: made.inputs, "labels": made.labels})
    assert float(outputs["loss"]) == loss
    np.testing.assert_array_equal(outputs["output"], scores)
    pairs = dict(under_test.gradient())
    assert pairs.keys() == gradients.keys()
    for parameter, gradient in gradients.items():
        np.testing.assert_array_equal(under_test.fetch_tensors([pairs[parameter]])[0], gradient)
    with torch.no_grad():
        expected = module.eval()(torch.from_numpy(made.inputs)).numpy()
    found = under_test.inference({under_test.inputs[0]: made.inputs})
    np.testing.assert_array_equal(found["output"], expected)


def test_inputs_and_outputs_have_the_models_names() -> None:
    """Those of forward's arguments and a dictionary's keys, to who watches too; a loss of the model's own is
    differentiated."""
    watching = CollectValues()
    under_test = d5fw.from_native(Two(), events=watching)
    assert under_test.inputs == ("left", "right")
    left, right = np.array([1.0, 2.0], np.float32), np.array([3.0, 4.0], np.float32)
    outputs = under_test.inference_and_backprop({"left": left, "right": right}, "cost")
    assert list(watching.values) == ["left", "right"]
    np.testing.assert_array_equal(outputs["product"], [3, 16])
    assert outputs["cost"] == 9 + 256
    slopes = under_test.fetch_tensors(["gain_grad", "spare_grad"])
    np.testing.assert_array_equal(slopes[0], [18, 256])  # 2 (l r)² g
    assert slopes[1] == 0
    under_test.feed_tensor("gain", np.zeros(2))
    assert not under_test.inference({"left": left, "right": right})["product"].any()


WRONG: dict[str, tuple[Callable[[Any, Any], object], str]] = {
    "input": (lambda made, given: made.inference({"imput": given["input"]}), "'imput': did you mean 'input'"),
    "no labels": (
        lambda made, given: made.inference_and_backprop({"input": given["input"]}), "the input 'labels'",
    ),
    "a list": (
        lambda made, given: made.inference_and_backprop(given | {"labels": [1]}), "'labels' is a list",
    ),
    "no loss": (lambda made, given: made.inference_and_backprop(given, "cost"), "no 'cost' to differentiate"),
    "scores": (lambda made, given: made.inference_and_backprop(given, "output"), "and is not a scalar"),
    "too early": (lambda made, given: made.fetch_tensors(["1.weight_grad"]), "no gradient .* yet"),
    "name": (lambda made, given: made.fetch_tensors(["1.wight"]), r"no tensor '1\.wight'.*'1\.weight'"),
    "shape": (lambda made, given: made.feed_tensor("1.bias", np.zeros(2)), r"\(16,\), found \(2,\)"),
}  # fmt: skip


@pytest.mark.every_case
@pytest.mark.parametrize("wrong", WRONG)
def test_what_does_not_fit_is_refused(wrong: str) -> None:
    """Inputs, losses, names and shapes, each with what to do."""
    call, words = WRONG[wrong]
    made = case("mlp")
    with pytest.raises(ConfigurationError, match=words):
        call(d5fw.from_native(made.twin(), LOSS), made.given)
