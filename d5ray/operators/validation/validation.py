"""Checks of operators: outputs against a reference, gradients against finite differences, repeatability"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from d5ray.checks import check_choice, check_count, check_items, check_kind, check_path, check_rate, shown
from d5ray.errors import ConfigurationError, D5Error, OperatorError, ValidationError, first_line
from d5ray.failures.program_state import as_before
from d5ray.operators.custom.custom_operator import CustomOp
from d5ray.operators.framework import Framework, Numbers, Tensor, as_tuple, framework_of
from d5ray.operators.nodes.bound_operator import BoundOperator
from d5ray.operators.validation.directional_derivatives import DirectionalDerivatives
from d5ray.operators.validation.error_norms import error_norms, inexact
from d5ray.operators.validation.finite_differences import step_of
from d5ray.operators.validation.gradient_check import Elements, Method
from d5ray.operators.validation.heat_map import check_installed
from d5ray.operators.validation.linearization import LinearizationPoint
from d5ray.operators.validation.reports import ForwardReport, GradientReport, RepeatabilityReport, variation

MOST_CALLS: Final = 4000  # of the operator and its gradient, for a whole Jacobian
MOST_ELEMENTS: Final = 1 << 22  # of that Jacobian
DIRECTIONS: Final = 4
# Relative errors of a gradient: five points in double precision are good to about 1e-10 of the outputs' size,
# in single precision to about 1e-4, in half precision to about 1e-1. By ε, from which on.
GRADIENT_TOLERANCES: Final = {0.0: 1e-6, 1e-12: 1e-2, 1e-5: 0.5}
TYPES: Final = ("float64", "float32")
MOST_RUNS: Final = 100_000  # whose outputs are kept beside each other
REPEATED: Final = 1e-9  # relative difference of two calls from which on differences say nothing

Inputs = Sequence[Tensor | None]
Report = TypeVar("Report", ForwardReport, GradientReport, RepeatabilityReport)


# -- forward -------------------------------------------------------------------------------------------------


@as_before()
def check_forward(
    operator: Any,
    inputs: Inputs,
    reference: Any,
    *,
    tolerance: float | None = None,
    picture: str | Path | None = None,
) -> ForwardReport:
    """A report that an operator's outputs equal a reference; otherwise raises `ValidationError` with it.

    operator   a function of arrays that gives one or several, of any framework, or an operator of one's own,
               such as a CustomPythonOp
    inputs     arrays of one framework, under which the operator runs; None for an omitted one. The operator
               must not change them, and outputs must stay valid when it is called with others.
    reference  expected arrays, or an operator that gets the inputs as NumPy arrays
    tolerance  of the L2 norm and of the largest difference, relative to the expected values; by default the
               rounding of sums of some thousand terms in the coarser of both types: 1e-10 in float64, 1e-4
               in float32, 2e-2 in float16, 1e-1 in bfloat16; integers must be equal
    picture    the path of a PNG for the heat map of the output with the largest error

    >>> report = check_forward(np.exp, [np.array([0.0, 1.0])], [np.array([1.0, 2.718281828459045])])
    >>> print(report)
    exp: passed
      output 0 (2,): as expected, to a relative 1e-10; L1 0 (relative 0), L2 0 (0), largest 0 (0)
    """
    if tolerance is not None:
        check_rate("tolerance", tolerance, zero=True)
    if picture is not None:
        check_installed()
        picture = check_path("picture", picture)
        if picture.is_dir() or not picture.parent.is_dir():
            what = "a folder" if picture.is_dir() else "in a folder that does not exist"
            raise ConfigurationError(f"picture is {str(picture)!r}, {what}: give the path of a file")
    inputs = _given(operator, inputs)
    framework, name = framework_of(inputs), _name(operator)
    operator = framework.usable(operator)
    found = _unchanging(framework, operator, inputs, name)
    _check_kept_outputs(framework, operator, inputs, name)
    given = [None if each is None else framework.numbers(each) for each in inputs]
    expected = _expected(reference, given)
    if len(found) != len(expected):
        raise ValidationError(f"{name} gave {len(found)} outputs, expected are {len(expected)}")
    pairs = zip(found, expected, strict=True)
    norms = tuple(error_norms(f"output {at}", o, r, tolerance) for at, (o, r) in enumerate(pairs))
    report = ForwardReport(name, norms, found, expected)
    if picture is not None:
        worst = max(range(len(norms)), key=lambda at: (norms[at].unequal, norms[at].relative_largest))
        Path(picture).write_bytes(report.picture(worst))
    return _raised(report)


# -- gradients -----------------------------------------------------------------------------------------------


@as_before()
def check_gradient(
    operator: Any,
    inputs: Inputs,
    *,
    tolerance: float | None = None,
    with_respect_to: Sequence[int] | None = None,
    dtype: str = "float64",
    most_calls: int = MOST_CALLS,
    directions: int = DIRECTIONS,
    seed: int = 0,
) -> GradientReport:
    """A report that an operator's gradient is its derivative; otherwise raises `ValidationError` with it.

    operator, inputs  as in `check_forward`; PyTorch's functions are differentiated by autograd, TensorFlow's
                      by a tape, operators of NumPy and CuPy by their `backward`
    tolerance         relative: 1e-6 in float64, 1e-2 where an output is float32, unless it is given
    with_respect_to   the numbers of the inputs whose gradient is compared; by default all of floating point
    dtype             of the computation: "float64", or "float32" if the operator supports nothing better
    most_calls        for a whole Jacobian; if it takes more, random directions are compared
    directions, seed  the number of directions, and the seed of their random numbers

    The differences are central, of five points, with a step of ε^(1/3) times the value or 1; see
    `d5ray.operators.validation.finite_differences` for why. At a kink of an operator (Relu at 0) any slope
    between the one-sided ones passes. Both ways find a single wrong element. Between its forward and its
    backward pass the operator is called with other inputs, as in a network that uses it twice: it must not
    store in `self` what `backward` needs.

    >>> from d5ray.operators.nodes.node import Node
    >>> class Square:
    ...     def forward(self, inputs):
    ...         return inputs[0] ** 2
    ...     def backward(self, gradients, inputs, outputs):
    ...         return 2 * inputs[0] * gradients[0]
    >>> check_gradient(Square(), [np.array([1.0, -2.0])]).passed
    True
    """
    check_choice("dtype", dtype, TYPES)
    if tolerance is not None:
        check_rate("tolerance", tolerance, zero=True)
    check_count("most_calls", most_calls, 0)
    check_count("directions", directions, 1)
    point, skipped = _point(operator, inputs, np.dtype(dtype), with_respect_to)
    if tolerance is None:
        tolerance = GRADIENT_TOLERANCES[max(least for least in GRADIENT_TOLERANCES if least <= point.epsilon)]
    calls = 4 * point.input_size + point.output_size
    small = calls <= most_calls and point.input_size * point.output_size <= MOST_ELEMENTS
    method: Method = Elements() if small else DirectionalDerivatives(directions, seed)
    deviations = method.deviations(point, tolerance) if point.output_size else ()
    step, without = step_of(point.epsilon), point.without() if deviations else ()
    report = GradientReport(
        _name(operator), method.told(point), step, tolerance, deviations, skipped, without
    )
    return _raised(report)


def _point(
    operator: Any, inputs: Inputs, dtype: "np.dtype[Any]", chosen: Sequence[int] | None
) -> tuple[LinearizationPoint, tuple[int, ...]]:
    """The point at which the gradient is compared, and the inputs that have none."""
    inputs = _given(operator, inputs)
    framework, name = framework_of(inputs), _name(operator)
    operator = framework.usable(operator)
    values: list[Numbers | None] = []
    for each in inputs:
        numbers = None if each is None else framework.numbers(each)
        values.append(numbers.astype(dtype) if numbers is not None and inexact(numbers) else numbers)
    free = tuple(at for at, each in enumerate(values) if each is not None and each.dtype.kind == "f")
    skipped = tuple(at for at, each in enumerate(values) if each is not None and at not in free)
    free = tuple(at for at in free if values[at].size)  # type: ignore[union-attr]
    if chosen is not None:
        wanted = f"the numbers of floating-point inputs, of {free}"
        chosen = check_items("with_respect_to", chosen, wanted)
        for at in chosen:
            check_kind("with_respect_to has", at, int | np.integer, wanted)
        if not set(chosen) <= set(free):
            raise ConfigurationError(f"with_respect_to is {shown(chosen)}: it must be {wanted}")
        free = chosen
    if not free:
        raise ConfigurationError(f"{name} has no floating-point input: there is no gradient to check")

    def outputs_at(given: Sequence[Numbers | None]) -> tuple[Numbers, ...]:
        arrays = [None if each is None else framework.array(each) for each in given]
        return framework.outputs(operator, arrays)

    outputs, pullback = framework.linearized(operator, values)
    outputs = outputs[: len(outputs_at(values))]  # without those that the backward pass alone needs
    again = outputs_at(values)
    for at, (one, other) in enumerate(zip(outputs, again, strict=True)):
        norms = error_norms(f"output {at}", other, one, REPEATED if one.dtype == dtype else None)
        if not norms.passed:
            raise ValidationError(
                f"{name} gives other outputs at the second call with the same inputs: fix its random numbers "
                f"to check its gradient\n  {norms}"
            )
    kinds = [dtype, *(each.dtype for each in outputs if each.dtype.kind == "f")]
    epsilon = max(float(np.finfo(kind).eps) for kind in kinds)
    point = LinearizationPoint(tuple(values), free, outputs_at, outputs, pullback, epsilon)
    _check_used_twice(point, name, REPEATED if dtype == np.float64 else None)
    return point, skipped


def _check_used_twice(point: LinearizationPoint, name: str, tolerance: float | None) -> None:
    """Raise `ValidationError` where the gradient is another one after a call with other inputs."""
    weights = np.random.default_rng(0).standard_normal(point.output_size)
    before = point.gradient(weights)
    with suppress(Exception):  # it need not take them
        point.at([None if each is None else _other(each) for each in point.values])
    for at, own, after in zip(point.free, before, point.gradient(weights), strict=True):
        norms = error_norms(f"the gradient of input {at}", after, own, tolerance)
        if not norms.passed:
            raise ValidationError(
                f"{name} gives another gradient where it was called with other inputs in between, as by a "
                "network that has it twice: take what backward needs from its arguments, the inputs and "
                f"outputs of that call, and leave nothing in self\n  {norms}"
            )


def _other(values: Numbers) -> Numbers:
    """Other inputs of the same kind: half the numbers, in reverse order."""
    return values.ravel()[::-1].reshape(values.shape) / values.dtype.type(2) if inexact(values) else values


# -- run against run -----------------------------------------------------------------------------------------


@as_before()
def check_repeatability(
    operator: Any, inputs: Inputs, runs: int = 10, *, tolerance: float = 0.0
) -> RepeatabilityReport:
    """A report that an operator's outputs are repeatable; otherwise raises `ValidationError` with it.

    operator, inputs  as in `check_forward`
    runs              the number of calls
    tolerance         0: bitwise equal; otherwise the largest standard deviation of an element, relative to
                      the output's largest value

    >>> print(check_repeatability(np.exp, [np.array([0.0, 1.0])], runs=3))
    exp: passed
      output 0: the same bits in 3 runs
    """
    check_count("runs", runs, 2, MOST_RUNS)
    check_rate("tolerance", tolerance, zero=True)
    inputs = _given(operator, inputs)
    framework, name = framework_of(inputs), _name(operator)
    operator = framework.usable(operator)
    found = [_unchanging(framework, operator, inputs, name) for _ in range(runs)]
    shapes = {tuple(each.shape for each in outputs) for outputs in found}
    if len(shapes) > 1:
        raise ValidationError(f"{name} gave outputs of other shapes in other runs: {sorted(shapes)}")
    outputs = zip(*found, strict=True)
    varied = tuple(variation(f"output {at}", each, tolerance) for at, each in enumerate(outputs))
    return _raised(RepeatabilityReport(name, varied))


# -- what all of them share ----------------------------------------------------------------------------------


def _given(operator: Any, inputs: Any) -> tuple[Any, ...]:
    """The inputs. Raises `ConfigurationError` for what is no operator, or no sequence."""
    if not callable(operator) and not hasattr(operator, "forward"):
        raise ConfigurationError(
            f"operator is {shown(operator)}: it must be a function of arrays, or have forward(inputs)"
        )
    check_kind("inputs", inputs, list | tuple, "a list of arrays")
    return tuple(inputs)


def _unchanging(framework: Framework, operator: Any, inputs: Inputs, name: str) -> tuple[Numbers, ...]:
    """The outputs; `ValidationError` where the operator changes an input."""
    before = [None if each is None else framework.numbers(each) for each in inputs]
    outputs = _told(name, lambda: framework.outputs(operator, inputs))
    for at, (each, was) in enumerate(zip(inputs, before, strict=True)):
        if was is not None and framework.numbers(each).tobytes() != was.tobytes():
            raise ValidationError(f"{name} changed its input {at}: it must stay as it is")
    return outputs


def _check_kept_outputs(framework: Framework, operator: Any, inputs: Inputs, name: str) -> None:
    """Raise `ValidationError` where outputs change when the operator is called with other inputs."""
    outputs = framework.called(operator, inputs)
    before = list(map(framework.numbers, outputs))
    with suppress(Exception):  # it need not take them
        numbers = [None if each is None else framework.numbers(each) for each in inputs]
        others = [None if each is None else framework.array(_other(each)) for each in numbers]
        framework.called(operator, others)
    for at, (each, was) in enumerate(zip(outputs, before, strict=True)):
        if framework.numbers(each).tobytes() != was.tobytes():
            raise ValidationError(
                f"output {at} of {name} changes when it is called again: return new memory every time, such "
                "as a copy of what it keeps"
            )


def _told(name: str, call: Callable[[], tuple[Numbers, ...]]) -> tuple[Numbers, ...]:
    """The outputs of the user's own function; `OperatorError` says what it raises."""
    try:
        found: tuple[Numbers, ...] = call()
        return found
    except D5Error:
        raise
    except Exception as error:
        raise OperatorError(
            f"{name} failed ({type(error).__name__}: {first_line(error)}): it must take the inputs"
        ) from error


def _expected(reference: Any, inputs: Sequence[Numbers | None]) -> tuple[Numbers, ...]:
    """The reference's arrays in the memory of the host."""
    if callable(reference):
        outputs = _told("reference", lambda: as_tuple(reference(*inputs)))
    elif isinstance(reference, CustomOp):
        outputs = tuple(map(_numbers, reference.run_forward(np, inputs)))
    elif hasattr(reference, "forward"):
        outputs = as_tuple(reference.forward(list(inputs)))
    else:
        outputs = as_tuple(reference)
    return tuple(_numbers(each) for each in outputs)


def _numbers(array: Any) -> Numbers:
    if isinstance(array, (np.ndarray, np.generic, float, int, list)):
        return np.asarray(array)
    return framework_of([array]).numbers(array)


def _name(operator: Any) -> str:
    if isinstance(operator, BoundOperator):
        return str(operator)
    if isinstance(operator, CustomOp):
        return operator.operator_name
    return str(getattr(operator, "__name__", None) or type(operator).__name__)


def _raised(report: Report) -> Report:
    if not report.passed:
        raise ValidationError(str(report))
    return report
