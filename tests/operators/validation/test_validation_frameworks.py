"""Claims about checking functions of frameworks: differentiated as the framework does, on its own arrays"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.errors import ConfigurationError, ValidationError
from d5ray.operators.framework import FRAMEWORKS, class_named, framework_of

Make = Callable[[Any], Any]


class Cubed(torch.autograd.Function):
    """x³ with a backward pass of its own, which is wrong by a factor."""

    factor = 1.0

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = context.saved_tensors
        found: torch.Tensor = gradient * 3 * x**2
        found[..., -1] *= Cubed.factor
        return found


@pytest.mark.parametrize("size", [6, 5_000])
def test_autograd_is_compared_with_differences(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A right function passes in float64 though it is given float32; one wrong element is found."""
    x = torch.randn(size, generator=torch.Generator().manual_seed(0))
    x[-1] = 1.0
    assert d5.operators.check_gradient(Cubed.apply, [x]).passed
    monkeypatch.setattr(Cubed, "factor", 1.01)
    with pytest.raises(ValidationError, match=rf"\({size - 1},\)"):
        d5.operators.check_gradient(Cubed.apply, [x])


def test_a_layer_with_several_inputs_and_outputs() -> None:
    """torch.lstm_cell-like sums: each input's gradient, through both outputs; labels have none."""

    def function(x: torch.Tensor, w: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scores = torch.tanh(x @ w)
        return torch.nn.functional.cross_entropy(scores, labels, reduction="none"), scores, labels

    x, w = torch.randn(3, 4), torch.randn(4, 5)
    report = d5.operators.check_gradient(function, [x, w, torch.tensor([0, 4, 2])])
    assert [each.what for each in report.deviations] == ["input 0", "input 1"]
    assert report.skipped == (2,)


def test_a_detached_input_is_a_missing_gradient() -> None:
    """Where autograd gives none though the output changes, that is an error; elsewhere it is right."""
    x, w = torch.randn(2, 3), torch.randn(2, 3)
    with pytest.raises(ValidationError, match=r"input 1 is WRONG: 0, differences give"):
        d5.operators.check_gradient(lambda x, w: x * w.detach(), [x, w])
    assert d5.operators.check_gradient(lambda x, w: x * 2, [x, w]).passed


def test_types_of_16_bits_are_compared_as_they_are() -> None:
    """bfloat16 and float16 against float64, to their own tolerance."""
    x = torch.randn(50, 50)
    for dtype in (torch.bfloat16, torch.float16):
        assert d5.operators.check_forward(
            lambda a: a * 3, [x.to(dtype)], lambda a: np.asarray(a, np.float64) * 3
        ).passed
        with pytest.raises(ValidationError):
            d5.operators.check_forward(
                lambda a: a * 4, [x.to(dtype)], lambda a: np.asarray(a, np.float64) * 3
            )


def test_one_framework_is_checked_against_another() -> None:
    """PyTorch's convolution with SciPy's correlation; with a flipped filter it differs."""
    from scipy.signal import correlate2d  # noqa: PLC0415 - takes a second to import

    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 1, 9, 8)), rng.standard_normal((1, 1, 3, 2))

    def reference(x: Any, w: Any) -> Any:
        return correlate2d(x[0, 0], w[0, 0], mode="valid")[None, None]

    given = [torch.tensor(x), torch.tensor(w)]
    assert d5.operators.check_forward(torch.conv2d, given, reference).passed
    with pytest.raises(ValidationError, match="conv2d: FAILED"):
        d5.operators.check_forward(torch.conv2d, given, lambda x, w: reference(x, w[..., ::-1, :]))


def test_tensorflow_is_differentiated_by_a_tape() -> None:
    """Passes, and a planted error in one element is found; of a gather, whose gradient is slices, too."""
    tf = pytest.importorskip("tensorflow")
    x = tf.random.stateless_normal((3, 4), seed=(1, 2))
    assert d5.operators.check_gradient(lambda x: tf.nn.softmax(x) * 2, [x]).passed
    assert d5.operators.check_gradient(lambda x: tf.gather(x, [2, 0, 2]), [x]).passed

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def wrong(x: Any) -> Any:
        return x**2, lambda upstream: upstream * 2 * x * tf.constant([1.0, 1, 1, 1.01], x.dtype)

    with pytest.raises(ValidationError, match="is WRONG"):
        d5.operators.check_gradient(wrong, [x])
    assert d5.operators.check_forward(tf.nn.relu, [x], lambda x: np.maximum(x, 0)).passed
    assert d5.operators.check_repeatability(tf.nn.relu, [x], runs=3).bitwise
    (found,) = class_named("tensorflow").on("cpu").outputs(tf.nn.relu, [x])
    np.testing.assert_array_equal(found, np.maximum(x, 0))


def test_jax_is_differentiated_by_its_vector_jacobian_products() -> None:
    """Passes in float64 though it is given float32, beside an integer output; a planted error is found."""
    jax = pytest.importorskip("jax")
    x, w = (jax.random.normal(jax.random.key(seed), (3, 3)) for seed in (1, 2))
    both = d5.operators.check_gradient(
        lambda x, w, n: (jax.nn.softmax(x @ w), n + 1), [x, w, jax.numpy.arange(3)]
    )
    assert both.passed and both.skipped == (2,)

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def wrong(x: Any) -> Any:
        return x**2

    wrong.defvjp(lambda x: (x**2, x), lambda x, upstream: (upstream * 2.02 * x,))
    with pytest.raises(ValidationError, match="is WRONG"):
        d5.operators.check_gradient(wrong, [x])
    assert d5.operators.check_forward(jax.nn.relu, [x], lambda x: np.maximum(x, 0)).passed
    assert framework_of([x]).name == "jax"


def test_cupy_is_checked_on_its_gpu() -> None:
    cupy = pytest.importorskip("cupy")
    try:
        class_named("cupy").on("cuda")
    except ConfigurationError as error:
        pytest.skip(str(error))
    assert d5.operators.check_forward(cupy.exp, [cupy.ones(3)], np.exp).passed


def test_the_framework_is_that_of_the_arrays() -> None:
    """A mixture, and an unknown name, are errors."""
    assert framework_of([np.ones(1), None]).name == "numpy"
    assert framework_of([torch.ones(1)]).name == "torch"
    with pytest.raises(ConfigurationError, match=r"numpy\.ndarray, torch\.Tensor"):
        framework_of([np.ones(1), torch.ones(1)])
    with pytest.raises(ConfigurationError, match="did you mean 'torch'"):
        class_named("pytorch")
    assert set(FRAMEWORKS) == {"numpy", "torch", "tensorflow", "cupy", "jax"}


def test_a_missing_framework_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name, and the command."""
    import sys  # noqa: PLC0415

    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(ConfigurationError, match=r"tensorflow is not there .*d5ray\[tensorflow\]"):
        class_named("tensorflow")
