"""Claims about checking operators: right ones pass, wrong ones fail with what is wrong and where it is"""

import io
import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import d5ray as d5
from d5ray.errors import ConfigurationError, ValidationError
from d5ray.operators.array_operator import ArrayOperator
from d5ray.operators.nodes.bound_operator import BoundOperator
from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.operators.validation.error_norms import error_norms, tolerance_of
from d5ray.operators.validation.heat_map import _drawn, heat_map, relative_difference

Array = np.ndarray[Any, Any]
Wrong = Callable[[list[Array]], None]


class Product:
    """A · B, as a custom operator; `wrong` changes its gradients."""

    def __init__(self, wrong: Wrong = lambda gradients: None) -> None:
        self.wrong = wrong

    def forward(self, inputs: Sequence[Array]) -> Array:
        return inputs[0] @ inputs[1]

    def backward(
        self, gradients: Sequence[Array], inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> Sequence[Array]:
        found = [gradients[0] @ inputs[1].T, inputs[0].T @ gradients[0]]
        self.wrong(found)
        return found


class Elementwise:
    """A function of every element, and its derivative."""

    def __init__(self, function: Callable[[Array], Array], slope: Callable[[Array], Array]) -> None:
        self.function, self.slope = function, slope

    def forward(self, inputs: Sequence[Array]) -> Array:
        return self.function(inputs[0])

    def backward(
        self, gradients: Sequence[Array], inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> Array:
        return gradients[0] * self.slope(inputs[0])


def matrices(*sizes: int) -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal((a, b)) for a, b in pairwise(sizes)]


SMALL, LARGE = (3, 4, 5), (60, 70, 80)


def test_an_operator_of_ones_own_is_a_reference() -> None:
    """Written with a parameter for each input, and given as the expectation of another operator."""

    class Difference(d5.CustomPythonOp):
        def forward(self, a: Any, b: Any) -> Any:
            return a - b

    a, b = matrices(3, 4)[0], matrices(3, 4)[0] + 1
    assert d5.operators.check_forward(lambda a, b: a - b, [a, b], Difference()).passed
    with pytest.raises(ValidationError, match="output 0"):
        d5.operators.check_forward(lambda a, b: b - a, [a, b], Difference())


# -- gradients -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [SMALL, LARGE], ids=["elements", "directions"])
def test_a_right_gradient_passes(sizes: tuple[int, ...]) -> None:
    """The whole Jacobian of a small product, random directions of a large one."""
    report = d5.operators.check_gradient(Product(), matrices(*sizes))
    assert report.passed
    assert ("whole Jacobian" in str(report)) == (sizes == SMALL)


def scaled(gradients: list[Array]) -> None:
    gradients[0] *= 1.001


def one_element(gradients: list[Array]) -> None:
    gradients[1][-1, -2] *= 1.01


def negated(gradients: list[Array]) -> None:
    gradients[0] *= -1


def swapped(gradients: list[Array]) -> None:
    gradients[1][:] = gradients[1][::-1]


def dropped(gradients: list[Array]) -> None:
    gradients[0][0] = 0


def not_a_number(gradients: list[Array]) -> None:
    gradients[1][1, 1] = math.nan


@pytest.mark.parametrize("sizes", [SMALL, LARGE], ids=["elements", "directions"])
@pytest.mark.parametrize(
    ("wrong", "which"),
    [(scaled, 0), (one_element, 1), (negated, 0), (swapped, 1), (dropped, 0), (not_a_number, 1)],
)
def test_a_planted_error_is_found(wrong: Wrong, which: int, sizes: tuple[int, ...]) -> None:
    """Of whatever kind; the report names the input that has it."""
    with pytest.raises(ValidationError, match="Product: FAILED") as caught:
        d5.operators.check_gradient(Product(wrong), matrices(*sizes))
    assert re.search(rf"input {which}.*is WRONG", str(caught.value))


@pytest.mark.parametrize("sizes", [SMALL, LARGE], ids=["elements", "directions"])
def test_the_one_wrong_element_is_named(sizes: tuple[int, ...]) -> None:
    """By its index in its input, in a Jacobian and by halving a direction."""
    with pytest.raises(ValidationError) as caught:
        d5.operators.check_gradient(Product(one_element), matrices(*sizes))
    *_, line = (line for line in str(caught.value).splitlines() if re.search(r"input 1.*is WRONG", line))
    assert f"({sizes[1] - 1}, {sizes[2] - 2})" in line


@pytest.mark.parametrize("size", [4, 5_000])
def test_an_input_of_little_weight_is_checked_as_strictly(size: int) -> None:
    """Of 10⁶ a + 10⁻³ b the second gradient too, half a percent off."""

    class Weighted:
        def __init__(self, slope: float) -> None:
            self.slope = slope

        def forward(self, inputs: Sequence[Array]) -> Array:
            return 1e6 * np.sin(inputs[0]) + 1e-3 * inputs[1]

        def backward(self, gradients: Sequence[Array], inputs: Sequence[Array], outputs: Any) -> Any:
            return 1e6 * np.cos(inputs[0]) * gradients[0], self.slope * gradients[0]

    inputs = [np.zeros(size), np.ones(size)]
    assert d5.operators.check_gradient(Weighted(1e-3), inputs).passed
    with pytest.raises(ValidationError, match=r"input 1.*is WRONG"):
        d5.operators.check_gradient(Weighted(1.005e-3), inputs)


@pytest.mark.full
@settings(max_examples=20, deadline=None)
@given(at=st.integers(0, 69 * 80), factor=st.sampled_from([0.0, 0.9, 1.1, -1.0]), seed=st.integers(0, 100))
def test_no_single_element_hides_from_random_directions(at: int, factor: float, seed: int) -> None:
    """Whichever it is, and whatever the directions, unless it happens to be near nothing."""

    def wrong(gradients: list[Array]) -> None:
        gradients[1].flat[at] *= factor

    with pytest.raises(ValidationError, match="is WRONG"):
        d5.operators.check_gradient(Product(wrong), matrices(*LARGE), seed=seed)


CURVES: list[tuple[Callable[[Array], Array], Callable[[Array], Array], list[float]]] = [
    (np.exp, np.exp, [-3.0, 0.0, 1.0, 20.0]),
    (np.log, np.reciprocal, [1e-3, 1.0, 1e6]),
    (np.sqrt, lambda x: 0.5 / np.sqrt(x), [1e-3, 2.0, 1e8]),
    (np.reciprocal, lambda x: -1 / x**2, [1e-3, -1.0, 1e4]),
    (np.tanh, lambda x: 1 / np.cosh(x) ** 2, [0.0, 3.0, -8.0]),
    (lambda x: x + 1e6, np.ones_like, [0.5, -4.0]),
    (np.sin, np.cos, [0.0, math.pi / 2, 100.0]),
    (np.abs, np.sign, [-2.0, 0.0, 3.0]),
    (lambda x: np.maximum(x, 0), lambda x: (x > 0).astype(x.dtype), [-2.0, 0.0, 1e-7, 3.0]),
    (lambda x: np.maximum(x, 0), lambda x: (x >= 0).astype(x.dtype), [-2.0, 0.0, 1e-7, 3.0]),
]


@pytest.mark.parametrize("number", range(len(CURVES)))
def test_derivatives_over_wide_ranges_pass_and_one_percent_off_does_not(number: int) -> None:
    """Steep ones, flat ones, large offsets; at a kink any slope between those to both sides is right."""
    function, slope, places = CURVES[number]
    x = np.array(places)
    assert d5.operators.check_gradient(Elementwise(function, slope), [x]).passed
    with pytest.raises(ValidationError, match="WRONG"):
        d5.operators.check_gradient(Elementwise(function, lambda x: 1.01 * slope(x)), [x])


def _relu_slope(x: Array, at_zero: float) -> Array:
    return np.where(x > 0, 1.0, np.where(x < 0, 0.0, at_zero))


def test_a_slope_outside_the_kink_is_wrong() -> None:
    """Relu at 0: slopes from 0 to 1 pass, −0.1 and 1.1 do not."""
    for slope, right in ((0.0, True), (0.3, True), (1.0, True), (-0.1, False), (1.1, False)):
        relu = Elementwise(lambda x: np.maximum(x, 0), partial(_relu_slope, at_zero=slope))
        x = [np.array([0.0, -1.0, 1.0])]
        if right:
            assert "1 at a kink" in str(d5.operators.check_gradient(relu, x))
        else:
            with pytest.raises(ValidationError, match=r"\(0,\) / d input 0 \(0,\)"):
                d5.operators.check_gradient(relu, x)


def test_where_nothing_is_defined_nothing_is_compared() -> None:
    """At a jump of sign(x), at the edge of arcosh, where an input or output is infinite; elsewhere it is."""
    x = np.array([0.0, -2.0, 3.0])
    assert d5.operators.check_gradient(Elementwise(np.sign, np.zeros_like), [x]).passed
    with pytest.raises(ValidationError, match=r"d input 0 \(1,\)|d input 0 \(2,\)"):
        d5.operators.check_gradient(Elementwise(np.sign, lambda x: 0.01 * np.ones_like(x)), [x])
    with np.errstate(all="ignore"):
        edge = Elementwise(np.arccosh, lambda x: 1 / np.sqrt(x**2 - 1))
        assert "not defined" in str(d5.operators.check_gradient(edge, [np.array([1.0, 2.0])]))
        with pytest.raises(ValidationError, match=r"d input 0 \(1,\)"):
            d5.operators.check_gradient(Elementwise(np.arccosh, lambda x: 1 / x), [np.array([1.0, 2.0])])
        infinite = [np.array([math.inf, 1.0, -math.inf])]
        assert d5.operators.check_gradient(
            Elementwise(lambda x: 2 * x, lambda x: 2 + 0 * np.sign(x)), infinite
        ).passed
        with pytest.raises(ValidationError, match=r"d input 0 \(1,\)"):
            d5.operators.check_gradient(Elementwise(lambda x: 2 * x, lambda x: 3 + 0 * np.sign(x)), infinite)


def test_an_operator_without_a_slope_has_nothing_to_compare() -> None:
    """Its outputs are integers, whatever its gradient says."""
    found = d5.operators.check_gradient(
        Elementwise(lambda x: np.sign(x).astype(int), np.zeros_like), [np.ones(3)]
    )
    assert found.passed
    assert found.deviations == ()


def test_inputs_that_set_shapes_or_have_no_gradient_by_convention_are_left_out() -> None:
    """A length that changes the output's shape is an error that says what to do, and that helps."""

    class Repeat(Elementwise):
        def forward(self, inputs: Sequence[Array]) -> Array:
            return np.outer(inputs[0], np.ones(int(inputs[1])))

        def backward(self, gradients: Sequence[Array], inputs: Sequence[Array], outputs: Any) -> Any:
            return gradients[0].sum(axis=1), None

    repeat, inputs = Repeat(np.exp, np.exp), [np.array([1.0, 2.0]), np.array(3.0)]
    with pytest.raises(ValidationError, match=r"change their shapes with input 1: .*with_respect_to"):
        d5.operators.check_gradient(repeat, inputs)
    assert d5.operators.check_gradient(repeat, inputs, with_respect_to=[0]).passed
    with pytest.raises(ConfigurationError, match=r"with_respect_to is \(2,\)"):
        d5.operators.check_gradient(repeat, inputs, with_respect_to=[2])


def test_an_output_in_single_precision_is_held_to_that() -> None:
    """Though the inputs are float64: what is rounded to float32 cannot be differenced better."""

    def rounded(x: Array) -> Array:
        return np.sin(x).astype(np.float32)

    x = np.array([0.3, 1.0, 2.0])
    report = d5.operators.check_gradient(Elementwise(rounded, np.cos), [x])
    assert report.tolerance == 1e-2
    with pytest.raises(ValidationError):
        d5.operators.check_gradient(Elementwise(rounded, lambda x: 1.1 * np.cos(x)), [x])


def test_small_outputs_of_large_terms_are_not_held_to_less_than_rounding() -> None:
    """Some 1e-9 left over of numbers near 1: what rounding does is not taken for an error; more is one."""
    weights = np.linspace(1.0, 2.0, 20)

    class Saturated:
        def __init__(self, factor: float = 1.0) -> None:
            self.factor = factor

        def forward(self, inputs: Sequence[Array]) -> Array:
            rest = (1 + 1e-9 * (weights @ inputs[0])) - 1
            return np.concatenate([[rest], inputs[0]])

        def backward(self, gradients: Sequence[Array], inputs: Sequence[Array], outputs: Any) -> Any:
            return self.factor * 1e-9 * weights * gradients[0][0] + gradients[0][1:]

    x = [np.linspace(-1.0, 1.0, 20)]
    assert d5.operators.check_gradient(Saturated(), x).passed
    with pytest.raises(ValidationError):
        d5.operators.check_gradient(Saturated(1.5), x)


def test_many_kinks_do_not_hide_the_slope_along_a_direction() -> None:
    """A Relu of 20,000 elements, some of which lie within a step of 0."""
    x = np.random.default_rng(1).standard_normal(20_000)
    relu = Elementwise(lambda x: np.maximum(x, 0), lambda x: (x > 0).astype(x.dtype))
    assert d5.operators.check_gradient(relu, [x]).passed
    with pytest.raises(ValidationError, match="WRONG"):
        d5.operators.check_gradient(Elementwise(relu.function, lambda x: (x > 0.001).astype(x.dtype)), [x])


def test_the_step_along_a_direction_is_the_one_with_the_least_error_and_rounding() -> None:
    """A sine of 5,000 elements is differentiated to nine digits, which a smaller step would not be."""
    x = [np.random.default_rng(0).standard_normal(5000)]
    assert d5.operators.check_gradient(Elementwise(np.sin, np.cos), x, tolerance=1e-10).passed
    with pytest.raises(ValidationError, match="WRONG"):
        d5.operators.check_gradient(Elementwise(np.sin, lambda x: (1 + 1e-8) * np.cos(x)), x, tolerance=1e-10)


class Scale(ArrayOperator):
    """The first input times the number in the second, as the catalogue has operators; the mask is kept."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
        return inputs[0] * inputs[2], inputs[0] > 0

    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Any],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
    ) -> tuple[Any, ...]:
        assert gradients[1] is None
        return gradients[0] * inputs[2], None, (gradients[0] * inputs[0]).sum(axis=0)


def test_an_operator_of_the_catalogue_is_checked_at_its_site() -> None:
    """One output is asked for, another kept; an input left out; a list of integers has no gradient."""
    context = NodeContext(Node("Scale", ("x", "", "factor", "axis"), ("y",), name="scale1"))
    operator = BoundOperator(Scale(), context)
    x, factor = matrices(2, 3, 3)[0], np.array([2.0, 3.0, 4.0])

    class With(ArrayOperator):
        forward = Scale.forward

        def backward(self, *arguments: Any) -> tuple[Any, ...]:
            return (*Scale().backward(*arguments), None)

    report = d5.operators.check_gradient(BoundOperator(With(), context), [x, None, factor, np.array([1, 2])])
    assert report.skipped == (3,)
    assert "scale1 (Scale): passed" in str(report)
    assert d5.operators.check_forward(operator, [x, None, factor], [x * factor]).passed


def test_a_gradient_of_the_wrong_number_or_shape_is_an_error() -> None:
    """Each names what came and what must."""
    x = [np.ones(3)]
    with pytest.raises(ValidationError, match=r"gradient of input 0 has the shape \(1,\).*\(3,\)"):
        d5.operators.check_gradient(_Shaped(), x)
    with pytest.raises(ValidationError, match="gave 2 arrays"):
        d5.operators.check_gradient(_TooMany(), x)
    with pytest.raises(ConfigurationError, match="has no gradient: give an object with forward"):
        d5.operators.check_gradient(np.exp, x)
    with pytest.raises(ConfigurationError, match="no floating-point input"):
        d5.operators.check_gradient(Product(), [np.ones((2, 2), int)] * 2)


class _NoneFor:
    """x · factor, without a gradient for one of the two."""

    def __init__(self, which: int) -> None:
        self.which = which

    def forward(self, inputs: Sequence[Array]) -> Array:
        return inputs[0] * inputs[1]

    def backward(self, gradients: Sequence[Array], inputs: Sequence[Array], outputs: Sequence[Array]) -> Any:
        both = [gradients[0] * inputs[1], gradients[0] * inputs[0]]
        return [None if at == self.which else each for at, each in enumerate(both)]


@pytest.mark.parametrize("size", [3, 3000])
def test_none_is_no_gradient_and_named_where_the_output_depends_on_the_input(size: int) -> None:
    """As in PyTorch, where None is allowed: right for an input on which nothing depends."""
    x, zeros = np.linspace(1.0, 2.0, size), np.zeros(size)
    for which in (0, 1):
        with pytest.raises(ValidationError, match=rf"input {which}.*is WRONG[^$]*input {which} got None"):
            d5.operators.check_gradient(_NoneFor(which), [x, x])
    report = d5.operators.check_gradient(_NoneFor(0), [x, zeros], with_respect_to=[0])
    assert report.without == (0,) and "input 0 got None" in str(report)
    assert "got None" not in str(d5.operators.check_gradient(_NoneFor(2), [x, x]))


class _Shaped(Elementwise):
    def __init__(self) -> None:
        super().__init__(np.exp, np.exp)

    def backward(
        self, gradients: Sequence[Array], inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> Array:
        return np.ones(1)


class _TooMany(_Shaped):
    def backward(self, *arguments: Any) -> Any:
        return [np.ones(3), np.ones(3)]


def test_an_operator_that_draws_at_random_must_be_fixed_first() -> None:
    """Its differences would be of its random numbers."""
    rng = np.random.default_rng(0)
    dropout = Elementwise(lambda x: x * (rng.random(x.shape) < 0.5), np.ones_like)
    with pytest.raises(ValidationError, match=r"other outputs at the second call.*fix its random numbers"):
        d5.operators.check_gradient(dropout, [np.ones(50)])


def test_single_precision_can_be_asked_for() -> None:
    """For what computes in nothing better: a coarser step, a coarser tolerance."""
    product = Product(lambda gradients: None)
    seen: set[str] = set()

    def forward(inputs: Sequence[Array]) -> Array:
        seen.add(inputs[0].dtype.name)
        return inputs[0] @ inputs[1]

    product.forward = forward  # type: ignore[method-assign]
    assert d5.operators.check_gradient(product, matrices(*SMALL), dtype="float32").passed
    assert seen == {"float32"}
    with pytest.raises(ValidationError):
        d5.operators.check_gradient(Product(negated), matrices(*SMALL), dtype="float32")


# -- outputs -------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20), st.integers(0, 10**6))
def test_norms_are_those_of_numpy_linalg(values: list[float], seed: int) -> None:
    """L1, L2 and the largest of the difference, and over those of what is expected."""
    expected = np.array(values)
    found = expected + np.random.default_rng(seed).standard_normal(len(values))
    norms = error_norms("y", found, expected)
    for order, value, relative in (
        (1, norms.l1, norms.relative_l1),
        (2, norms.l2, norms.relative_l2),
        (np.inf, norms.largest, norms.relative_largest),
    ):
        error, size = np.linalg.norm(found - expected, order), np.linalg.norm(expected, order)
        assert value == pytest.approx(error)
        assert relative == pytest.approx(error / size if size else math.inf)
    assert norms.at == (int(np.argmax(np.abs(found - expected))),)


def test_a_forward_pass_is_compared_output_by_output(tmp_path: Path) -> None:
    """With arrays or a function; a wrong element is named with its values, its picture written."""
    x = matrices(*SMALL)
    assert d5.operators.check_forward(Product(), x, [x[0] @ x[1]]).passed

    def reference(a: Array, b: Array) -> tuple[Array, ...]:
        c = a @ b
        c[2, 1] += 0.5
        return (c,)

    with pytest.raises(ValidationError, match=r"output 0 \(3, 5\): differs.*largest 0\.5 .* at \(2, 1\)"):
        d5.operators.check_forward(Product(), x, reference, picture=tmp_path / "wrong.png")
    with Image.open(tmp_path / "wrong.png") as image:
        assert image.format == "PNG"


@pytest.mark.parametrize(
    ("dtype", "relative", "passes"),
    [
        ("float64", 1e-12, True), ("float64", 1e-9, False),
        ("float32", 1e-5, True), ("float32", 1e-3, False),
        ("float16", 1e-2, True), ("float16", 1e-1, False),
    ],
)  # fmt: skip
def test_the_tolerance_is_that_of_the_coarser_type(dtype: str, relative: float, passes: bool) -> None:
    """float64 10⁻¹⁰, float32 10⁻⁴, float16 2·10⁻², bfloat16 10⁻¹ of what is expected."""
    x = np.array([1.0, 2.0], dtype)
    norms = error_norms("y", (np.array([1.0, 2.0]) * (1 + relative)), x)
    assert norms.passed == passes
    assert tolerance_of(np.dtype("float32")) == 1e-4


def test_what_is_not_finite_must_be_the_same() -> None:
    """NaN where NaN is expected and the same infinity pass; a NaN too many fails, whatever the rest."""
    x = np.array([1.0, math.nan, math.inf])
    assert error_norms("y", x, x).passed
    for other in ([1.0, 2.0, math.inf], [1.0, math.nan, -math.inf], [math.nan, math.nan, math.inf]):
        norms = error_norms("y", np.array(other), x)
        assert not norms.passed
        assert norms.unequal == 1


def test_integers_must_be_equal_and_types_alike() -> None:
    """5 instead of 4 fails; integers for numbers with a fraction are an error, as is another shape."""
    assert error_norms("y", np.array([3, 4]), np.array([3, 4])).passed
    assert not error_norms("y", np.array([3, 5]), np.array([3, 4])).passed
    with pytest.raises(ValidationError, match=r"of type int64, expected is float64"):
        error_norms("y", np.array([3]), np.array([3.0]))
    with pytest.raises(ValidationError, match=r"shape \(1,\), expected is \(2,\)"):
        error_norms("y", np.array([3.0]), np.array([3.0, 4.0]))


def test_an_operator_that_changes_its_input_is_wrong() -> None:
    def spoils(x: Array) -> Array:
        x += 1
        return x

    with pytest.raises(ValidationError, match="spoils changed its input 0"):
        d5.operators.check_forward(spoils, [np.ones(2)], [np.ones(2)])


@pytest.mark.parametrize("inputs", [[], [None], [1.0], [np.ones(1), "x"]])
def test_inputs_must_be_arrays_of_one_framework(inputs: list[Any]) -> None:
    with pytest.raises(ConfigurationError, match="give arrays of one of numpy, torch, tensorflow, cupy"):
        d5.operators.check_forward(np.exp, inputs, [np.ones(1)])


# -- run against run -----------------------------------------------------------------------------------------


def test_repeatability_says_which_elements_vary_and_how_much() -> None:
    """Two elements that count the calls: the variance of 1 to 10 is 8.25, the others' is 0."""
    calls = iter(range(1, 100))

    def counts(x: Array) -> Array:
        y = x.copy()
        y[1, ::2] = next(calls)
        return y

    with pytest.raises(ValidationError, match=r"2 of 6 elements vary over 10 runs, variance 8\.25 at"):
        d5.operators.check_repeatability(counts, [np.ones((2, 3))])
    report = d5.operators.check_repeatability(counts, [np.ones((2, 3))], tolerance=1.0)
    assert not report.bitwise
    assert report.outputs[0].varies.tolist() == [[False] * 3, [True, False, True]]
    assert report.outputs[0].largest_variance == 8.25
    assert report.outputs[0].mean_variance == pytest.approx(8.25 / 3)


def test_equal_bits_are_repeatable_whatever_they_are() -> None:
    """NaN too; a negative zero is not a positive one."""
    x = np.array([math.nan, math.inf, -0.0])
    assert d5.operators.check_repeatability(lambda x: x * 1, [x], runs=3).bitwise
    signs = iter([0.0, -0.0])
    with pytest.raises(ValidationError, match="1 of 1 elements vary"):
        d5.operators.check_repeatability(lambda x: x * next(signs), [np.ones(1)], runs=2)
    with pytest.raises(ConfigurationError, match="runs is 1"):
        d5.operators.check_repeatability(lambda x: x, [x], runs=1)


# -- pictures ------------------------------------------------------------------------------------------------


def test_the_relative_difference_is_the_formula() -> None:
    """2 (o − r) / (|o| + |r|): 2 for something against nothing, −2 for its opposite, 0 for equal ones."""
    o, r = (
        np.array([1.0, -1.0, 3.0, 0.0, 0.0, math.nan, math.inf]),
        np.array([0.0, 1.0, 1.0, 2.0, 0.0, math.nan, 1.0]),
    )
    found = relative_difference(o, r)
    np.testing.assert_allclose(found[:5], [2, -2, 1, -2, 0], atol=1e-9)
    assert found[5] == 0
    assert math.isnan(found[6])


def drawn(found: Array, expected: Array) -> list[Array]:
    """The data of the panels and of the scale, as the picture has them; NaN where it is black."""
    return [
        np.ma.filled(np.ma.asarray(image.get_array()), math.nan)
        for axes in _drawn(found, expected, "$x$").axes
        for image in axes.images
    ]


@pytest.mark.full
@pytest.mark.parametrize(
    ("shape", "panels"),
    [((), 1), ((5,), 1), ((4, 6), 1), ((3, 4, 5), 3), ((2, 3, 4, 5), 6), ((0, 3), 1), ((700, 1300), 1)],
)
def test_arrays_of_any_shape_have_a_picture(shape: tuple[int, ...], panels: int) -> None:
    """A panel for each slice, of a size that can be looked at; the difference is in one of them alone."""
    expected = np.ones(shape)
    found = expected.copy()
    found.reshape(-1)[-1:] = 1.5
    shown = drawn(found, expected)
    assert len(shown) == panels and max(map(len, shown)) <= 640
    assert sorted(panel.max(initial=0.0) for panel in shown)[-1] == pytest.approx(0.4 if found.size else 0.0)
    assert sum(np.count_nonzero(panel) for panel in shown) == min(found.size, 1)
    assert not any(panel.any() for panel in drawn(expected, expected))
    with Image.open(io.BytesIO(heat_map(found, expected))) as image:
        assert image.format == "PNG" and max(image.size) < 1400


def test_one_wrong_element_of_a_million_can_be_seen() -> None:
    """It is in the place of its neighbourhood, and what is not finite too, which is black."""
    expected = np.ones((1000, 1000))
    found = expected.copy()
    found[321, 123] = 2.0
    found[700, 700] = math.nan
    (panel,) = drawn(found, expected)
    assert panel.shape == (500, 500)
    assert np.argwhere(panel > 0).tolist() == [[160, 61]] and panel[160, 61] == pytest.approx(2 / 3)
    assert np.argwhere(np.isnan(panel)).tolist() == [[350, 350]]
    with pytest.raises(ConfigurationError, match="must be alike"):
        heat_map(np.ones(2), np.ones(3))
