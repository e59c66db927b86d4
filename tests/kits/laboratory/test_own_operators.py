"""Claims about benches of operators of the user's own: what is measured, by whom, and what it costs"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from d5ray.actors.executors.operator_executor import OperatorExecutor
from d5ray.errors import ConfigurationError
from d5ray.kits.laboratory.bench.own_operators import OwnOperatorBench, named
from d5ray.operators.framework import class_named
from tests.kits.laboratory.comparing import check_rates, measured_rows

CODE = """
import numpy as np
import torch
from torch import nn
from torch.nn.functional import silu

import d5ray as d5


class Swish(d5.CustomPythonOp):
    def forward(self, x):
        return x / (1 + np.exp(-x))

    def backward(self, grads, fwd_inputs, fwd_outputs):
        sigma = 1 / (1 + np.exp(-fwd_inputs[0]))
        return grads[0] * (sigma + fwd_inputs[0] * sigma * (1 - sigma))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 3)

    def forward(self, x):
        return self.inner(x)


class Sized(nn.Linear):
    pass


def product(a, b):
    return torch.mm(a, b)


def total(x):
    return np.sum(x, axis=0)


def square(x):
    return x * x


def logarithm(x):
    return np.log(x)


def unwell(x):
    raise ValueError("it is unwell")


def slope(x):
    return torch.sqrt(x - x)


def rows(x):
    return x[:1] if type(x).__module__ == "numpy" else x


layer = Layer()
three = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "own.py"
    path.write_text(CODE)
    return str(path)


def bench(file: str, names: str, *shapes: str, **changes: Any) -> OwnOperatorBench:
    return OwnOperatorBench(operators=named([f"{file}:{names}"]), shapes=shapes, **changes)


def test_operators_are_compared_at_shapes_under_frameworks_that_can_call_them(file: str) -> None:
    """A custom operator under torch and numpy, a function under the framework that it is written in."""
    made = bench(file, "silu,Swish,total", "5x4", "7")
    assert made.frameworks == ("torch", "numpy")
    assert [each.name for each in made.problems()] == [
        "silu 5×4", "Swish 5×4", "total 5×4", "silu 7", "Swish 7", "total 7"
    ]  # fmt: skip
    under = {each.name: [name for name in made.frameworks if made.does(name, each.name)]
             for each in made.problems()}  # fmt: skip
    assert under["silu 7"] == ["torch"]
    assert under["Swish 7"] == ["torch", "numpy"]
    assert under["total 7"] == ["numpy"]
    assert bench(file, "Swish", "3", asked=("numpy",)).frameworks == ("numpy",)


def test_plain_arithmetic_is_measured_under_all_that_are_asked_for(file: str) -> None:
    """A function that calls a framework's functions under that one alone, whatever else is asked for."""
    made = bench(file, "square,silu", "4", asked=("numpy", "torch"))
    assert [name for name in made.frameworks if made.does(name, "square 4")] == ["numpy", "torch"]
    assert [name for name in made.frameworks if made.does(name, "silu 4")] == ["torch"]
    assert bench(file, "square", "4").frameworks == ("torch",)  # which the file imports


def test_what_moves_and_what_is_counted(file: str) -> None:
    """Each tensor once; in training an input is read twice, its gradient written. Nobody counts Swish."""
    (forward,) = bench(file, "product", "64x128,128x32").problems()
    assert forward.flops == 2 * 64 * 128 * 32
    assert forward.moved_bytes == 4 * (64 * 128 + 128 * 32 + 64 * 32)
    (training,) = bench(file, "product", "64x128,128x32", training=True).problems()
    assert training.flops == 3 * 2 * 64 * 128 * 32
    assert training.moved_bytes == 4 * (3 * (64 * 128 + 128 * 32) + 2 * 64 * 32)
    (module,) = bench(file, "Layer", "10x8").problems()
    assert (module.flops, module.parameter_bytes) == (2 * 10 * 8 * 3, 4 * (8 * 3 + 3))
    (swish,) = bench(file, "Swish", "100").problems()
    assert (swish.flops, swish.moved_bytes) == (0, 800)
    (told,) = bench(file, "Swish", "100", flops=(400,), training=True).problems()
    assert told.flops == 1200


@pytest.mark.parametrize("names", ["silu", "Layer", "layer", "Swish", "product"])
@pytest.mark.parametrize("training", [False, True])
def test_every_call_is_a_row(file: str, names: str, training: bool) -> None:
    """By an executor as a run has it, under torch: times, and the rates that follow from them."""
    shapes = "3x8" if names != "product" else "3x8,8x2"
    (problem,) = bench(file, names, shapes, training=training).problems()
    rows = measured_rows(OperatorExecutor("torch", "cpu", 1, "r", 4, 0, seed=1), problem)
    check_rates(rows, "operator_time", "byte_rate", problem.moved_bytes)
    assert {row["scope"] for row in rows} == {f"torch {names} {shapes.replace('x', '×')}"}
    assert ("flop_rate" in {row["metric"] for row in rows}) == (names in ("Layer", "layer", "product"))


def test_inputs_have_their_types_and_lie_between_the_values(file: str) -> None:
    """A logarithm is fine between 1 and 2; integers are drawn from the whole range, its ends included."""
    bench(file, "logarithm", "1000", values=(1.0, 2.0))
    (problem,) = bench(file, "total", "50x2:int64", values=(0.0, 9.0)).problems()
    assert problem.inputs[0].dtype == np.int64
    assert problem.name == "total 50×2:int64"


WRONG: list[tuple[str, str, dict[str, Any], list[str]]] = [
    ("three", "3", {}, ["three is a int", "give a function of arrays"]),
    ("Sized", "3", {}, ["cannot be made without arguments", "in_features"]),
    ("sil", "3", {}, ["has no 'sil'", "did you mean 'silu'?"]),
    (
        "unwell",
        "3",
        {},
        ["unwell with float32 (3,) under torch raised ValueError: it is unwell", "traceback"],
    ),
    (
        "product",
        "3x4,5x6",
        {},
        ["product with float32 (3, 4), float32 (5, 6)", "shapes cannot be multiplied"],
    ),
    ("logarithm", "100", {}, ["its output 0 has nan at [", "inputs from -1 to 1", "--values"]),
    ("slope", "4", {"training": True}, ["its gradient 0 has", "--values"]),
    ("total", "3", {"training": True}, ["has no gradient"]),
    ("layer", "3x8", {"asked": ("numpy",)}, ["layer is written in torch", "--frameworks torch"]),
    ("rows", "3x8", {"asked": ("torch", "numpy")}, ["that is not the same work"]),
    ("silu", "3xa", {}, ["'3xa', which is no shape", "64x128,128x256"]),
    ("silu", "100000x100000x100", {}, ["GB", "give smaller shapes"]),
    ("silu", "3", {"flops": (0,)}, ["--flops has 0"]),
]


@pytest.mark.parametrize(("names", "shapes", "changes", "expected"), WRONG)
def test_what_cannot_be_measured_is_one_clear_error(
    file: str, names: str, shapes: str, changes: dict[str, Any], expected: list[str]
) -> None:
    """Found, expected, what to do, before any process is started."""
    with pytest.raises(ConfigurationError) as found:
        bench(file, names, shapes, **changes)
    for words in expected:
        assert words in str(found.value)
    assert "\n" not in str(found.value)


OF_JAX = """
import jax
import jax.numpy as jnp
from flax import nnx


def product(a, b):
    return jnp.tanh(a @ b)


def rounded(x):
    return x.astype(jnp.int32)


module = nnx.Linear(3, 4, rngs=nnx.Rngs(0))
"""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_function_of_jax_is_measured_at_the_numbers_of_pytorch(dtype: str, tmp_path: Path) -> None:
    """The call gives its output, and in training the gradients of its inputs, when they are computed."""
    pytest.importorskip("flax", reason="Flax is not installed")
    (tmp_path / "of_jax.py").write_text(OF_JAX)
    made = bench(str(tmp_path / "of_jax.py"), "product", "3x4,4x5", training=True, dtype=dtype)
    assert made.frameworks == ("jax",)
    random = np.random.default_rng(0)
    a, b, upstream = (random.standard_normal(size).astype(dtype) for size in ((3, 4), (4, 5), (3, 5)))
    given = iter([a, b, upstream])
    jax = class_named("jax").on("cpu")
    jax.use_threads(1)
    (problem,) = made.problems()
    found: Any = problem.call(jax, lambda *_: jax.array(next(given)))()
    leaves = [torch.tensor(each, requires_grad=True) for each in (a, b)]
    output = torch.tanh(leaves[0] @ leaves[1])
    expected = [*torch.autograd.grad(output, leaves, torch.tensor(upstream)), output.detach()]
    for own, other in zip(found, expected, strict=True):
        assert own.dtype == dtype
        np.testing.assert_allclose(jax.numbers(own), other, rtol=1e-5, atol=1e-6)


def test_what_jax_cannot_do_is_one_clear_error(tmp_path: Path) -> None:
    """A module, whose parameters a call does not give; no gradient; an operator of d5ray's."""
    pytest.importorskip("flax", reason="Flax is not installed")
    (tmp_path / "of_jax.py").write_text(OF_JAX)
    file = str(tmp_path / "of_jax.py")
    with pytest.raises(
        ConfigurationError, match=r"nothing tells which framework.* a Linear: give a function that calls it"
    ):
        bench(file, "module", "2x3")
    with pytest.raises(ConfigurationError, match="it has no gradient"):
        bench(file, "rounded", "3:int64", training=True)


def test_what_is_not_there_is_one_clear_error(tmp_path: Path, file: str) -> None:
    """A file, a module, a name without a file, a file that raises or ends the program."""
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "ends.py").write_text("raise SystemExit(1)\n")
    for text, words in (
        (f"{tmp_path}/ow.py:silu", "there is no file"),
        (f"{tmp_path}/broken.py:x", "broken.py cannot be loaded: ZeroDivisionError: division by zero"),
        (f"{tmp_path}/ends.py:x", "called sys.exit(1) while it was loaded"),
        ("no_such_module_here:x", "there is no module no_such_module_here"),
        (f"{file}:", "is not of the form FILE:NAME"),
    ):
        with pytest.raises(ConfigurationError) as found:
            named([text])
        assert words in str(found.value)


def test_equal_names_of_two_files_are_told_apart(tmp_path: Path, file: str) -> None:
    """By the names of the files."""
    (tmp_path / "other.py").write_text(CODE)
    found = named([f"{file}:silu,Swish", f"{tmp_path}/other.py:Swish"])
    assert [each.name for each in found] == ["silu", "own.Swish", "other.Swish"]
