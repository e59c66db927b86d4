"""What RNN, GRU and LSTM share under every framework: the functions of their gates, and which a node names"""

from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from d5ray.ops.recurrence.activations import ACTIVATIONS, activations_of
from tests.ops.running import place

DEFINED: dict[str, Any] = {  # of x, alpha and beta, as ONNX defines them
    "Affine": lambda x, a, b: a * x + b,
    "Elu": lambda x, a: np.where(x < 0, a * np.expm1(x), x),
    "HardSigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "LeakyRelu": lambda x, a: np.where(x < 0, a * x, x),
    "Relu": lambda x: np.maximum(x, 0),
    "ScaledTanh": lambda x, a, b: a * np.tanh(b * x),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Softplus": lambda x: np.log1p(np.exp(x)),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Tanh": np.tanh,
    "ThresholdedRelu": lambda x, a: np.where(x > a, x, 0),
}
# Where the functions are, and how a tensor is made.
TABLES: dict[str, tuple[str, Any]] = {
    "numpy": ("arrays.gate_functions", lambda of, x: x),
    "torch": ("torch.recurrent_steps", lambda of, x: of.torch.tensor(x)),
    "tensorflow": ("tensorflow.recurrent", lambda of, x: of.tf.constant(x)),
}


@pytest.mark.parametrize("framework", TABLES)
def test_activations_are_those_of_onnx(framework: str) -> None:
    """Every function with alpha and beta where it has them, at values on both sides of all bounds."""
    place, tensor = TABLES[framework]
    x, module = np.linspace(-4, 4, 33), import_module(f"d5ray.ops.{place}")
    for name, usual in ACTIVATIONS.items():
        parameters, function = (0.3, 0.2)[: len(usual)], module.FUNCTIONS[name]
        if framework == "numpy":
            function = partial(function[0], np)  # beside its slope
        found = function(tensor(module, x), *parameters)
        np.testing.assert_allclose(found, DEFINED[name](x, *parameters), rtol=1e-12, err_msg=name)


def test_parameters_go_in_turn_to_the_functions_that_take_them() -> None:
    """Past those that take none; ONNX's defaults are left for who comes too late."""
    attributes = {
        "direction": "bidirectional", "activations": ("elu", "Tanh", "HARDSIGMOID", "LeakyRelu"),
        "activation_alpha": (0.3, 0.7), "activation_beta": (0.1,),
    }  # fmt: skip
    assert activations_of(place("GRU", [], attributes)) == [
        (("Elu", (0.3,)), ("Tanh", ())),
        (("HardSigmoid", (0.7, 0.1)), ("LeakyRelu", (0.01,))),
    ]
