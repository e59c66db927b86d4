"""Operators of one's own in Python: the slide's listing, the original's form, and what goes wrong"""

import pickle
from typing import Any

import numpy as np
import pytest

import d5ray as d5
import d5ray.frameworks.numpy as d5fw
from d5ray.errors import ConfigurationError, OperatorError
from tests.operators.custom.listings import BothOp, IPowOp

FLOAT32 = d5.TensorDescriptor("float32", (3,))
X = np.array([1.0, -2.0, 3.0], dtype=np.float32)


class Given(d5.CustomPythonOp):
    """Returns what it is given, whatever that is."""

    def __init__(self, outputs: Any = None, gradients: Any = None, descriptors: Any = None) -> None:
        super().__init__(None, descriptors)
        self.outputs, self.gradients = outputs, gradients

    def forward(self, inputs: Any) -> Any:
        return self.outputs

    def backward(self, grads: Any, fwd_inputs: Any, fwd_outputs: Any) -> Any:
        return self.gradients


def test_gradients_pass_the_check_against_central_differences() -> None:
    """And one that is wrong by a hundredth does not."""
    x = np.linspace(0.5, 2, 6).reshape(2, 3)
    for op, inputs in ((IPowOp(3), [x]), (BothOp("float64"), [x, x + 1])):
        assert d5.operators.check_gradient(d5fw.custom_op(op), inputs).passed

    class Wrong(IPowOp):  # type: ignore[misc]
        def backward(self, grads: Any, fwd_inputs: Any, fwd_outputs: Any) -> Any:
            return 1.01 * super().backward(grads, fwd_inputs, fwd_outputs)

    with pytest.raises(d5.ValidationError):
        d5.operators.check_gradient(d5fw.custom_op(Wrong(3)), [x])


def test_the_name_of_the_only_parameter_says_whether_it_is_the_list() -> None:
    """`forward(self, inputs)` gets a list; `forward(self, x)` and `forward(self, *inputs)` get arrays."""
    seen: list[Any] = []

    class Listed(d5.CustomPythonOp):
        def forward(self, inputs: Any) -> Any:
            seen.append(inputs)
            return inputs[0]

    class Single(d5.CustomPythonOp):
        def forward(self, x: Any) -> Any:
            seen.append(x)
            return x

    class Starred(d5.CustomPythonOp):
        def forward(self, *inputs: Any) -> Any:
            seen.append(inputs)
            return inputs[0]

    for kind in (Listed, Single, Starred):
        np.testing.assert_array_equal(d5fw.custom_op(kind)(X), X)  # a class without arguments is enough
    assert [type(each) for each in seen] == [list, np.ndarray, tuple]


def test_a_scalar_of_numpy_is_an_array_without_axes() -> None:
    """What sums and means give."""

    class Mean(d5.CustomPythonOp):
        def forward(self, x: Any) -> Any:
            return np.mean(x)

    found = d5fw.custom_op(Mean())(X)
    assert found.shape == ()
    assert found == np.mean(X)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ((X, X), r"gave 2 outputs, expected 1"),
        (X.astype("float64"), r"float64 \(3,\), expected float32 \(3,\): cast it with .astype\('float32'\)"),
        (X[:2], r"float32 \(2,\), expected float32 \(3,\): return an array of that shape"),
        (X[None], r"float32 \(1, 3\), expected float32 \(3,\)"),
        (1.5, r"of the type float, expected an array of numpy"),
        (None, r"is None, expected an array"),
    ],
)
def test_wrong_outputs_are_told(returned: Any, message: str) -> None:
    """Number, type, shape and kind."""
    with pytest.raises(OperatorError, match=message) as error:
        d5fw.custom_op(Given(returned, descriptors=[FLOAT32]))(X)
    assert "Given" in str(error.value)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ((X, X), r"gave 2 gradients, expected 1: return one for each input"),
        (X.astype("float64"), r"gave float64 \(3,\) for input 0, which is float32 \(3,\): cast it"),
        (X[:2], r"gave float32 \(2,\) for input 0, which is float32 \(3,\): return an array of that shape"),
        (2.0, r"the gradient for input 0 of Given is of the type float"),
    ],
)
def test_wrong_gradients_are_told(returned: Any, message: str) -> None:
    """Each has the type and shape of its input."""
    with pytest.raises(OperatorError, match=message):
        d5fw.custom_op(Given(X, returned)).backward([X], [X], [X])


def test_what_has_no_gradient_needs_none() -> None:
    """None where there is none; whatever is returned for integers is dropped."""
    whole = np.arange(3)
    found = d5fw.custom_op(Given(X, (None, whole))).backward([X], [X, whole], [X])
    assert found == (None, None)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ((2, 3), (2, 4), r"input 1 .* columns is 3 elsewhere, and 4 on axis 1"),
        ((2, 3), (2,), r"it has 1 axis instead of 2"),
    ],
)
def test_inputs_that_do_not_fit_the_descriptors_are_told(
    a: tuple[int, ...], b: tuple[int, ...], message: str
) -> None:
    """A name stands for one size."""
    with pytest.raises(ConfigurationError, match=message):
        d5fw.custom_op(BothOp("float32"))(np.ones(a, "float32"), np.ones(b, "float32"))


def test_inputs_of_another_number_type_or_kind_are_told() -> None:
    """What was found, and what is expected."""
    operation = d5fw.custom_op(BothOp("float32"))
    a = np.ones((2, 3), "float32")
    with pytest.raises(ConfigurationError, match="BothOp takes 2 inputs, found 1"):
        operation(a)
    with pytest.raises(
        ConfigurationError, match=r"input 1 .* is float64 \(2, 3\), expected float32 .*cast it"
    ):
        operation(a, a.astype("float64"))
    with pytest.raises(ConfigurationError, match="takes arrays of numpy, found a list"):
        operation(a, [1.0])


def test_what_is_no_operator_is_refused() -> None:
    """An object of another kind, a class that needs arguments, descriptors that are none, no forward."""
    with pytest.raises(ConfigurationError, match="is no operator"):
        d5fw.custom_op(lambda x: x)
    with pytest.raises(ConfigurationError, match="cannot be made of the class IPowOp alone"):
        d5fw.custom_op(IPowOp)
    with pytest.raises(ConfigurationError, match="descriptors of the outputs of the operator Given"):
        Given(descriptors=["float32"])
    with pytest.raises(ConfigurationError, match="CustomPythonOp has no forward"):
        d5fw.custom_op(d5.CustomPythonOp())(X)


def test_descriptors_are_known_and_names_follow_the_inputs() -> None:
    """num_inputs, num_outputs, infer; the listing has none and says so."""
    op = BothOp("float64")
    assert (op.num_inputs, op.num_outputs) == (2, 2)
    given = d5.TensorDescriptor("float64", ("batch", 4))
    assert op.infer([given, given]) == (given, given)
    assert IPowOp(2).infer([given]) is None
    with pytest.raises(ConfigurationError, match="IPowOp has no descriptors"):
        _ = IPowOp(2).num_inputs


def test_an_own_infer_is_checked_too() -> None:
    """It may compute sizes from sizes; what is no descriptor is refused."""

    class Halved(d5.CustomPythonOp):
        def __init__(self, gives: Any) -> None:
            super().__init__()
            self.gives = gives

        def infer(self, inputs: Any) -> Any:
            return self.gives(inputs[0])

        def forward(self, x: Any) -> Any:
            return x[::2]

    right = Halved(lambda x: [d5.TensorDescriptor(x.dtype, [(x.shape[0] + 1) // 2])])
    np.testing.assert_array_equal(d5fw.custom_op(right)(X), X[::2])
    wrong = Halved(lambda x: [x])
    with pytest.raises(
        OperatorError, match=r"output 0 of the operator Halved is float32 \(2,\), expected float32"
    ):
        d5fw.custom_op(wrong)(X)
    with pytest.raises(ConfigurationError, match="infer of the operator Halved gave 3"):
        d5fw.custom_op(Halved(lambda x: 3))(X)


def test_a_class_may_call_its_own_parts_as_it_likes() -> None:
    """`name` and `_forward`, which many classes have."""

    class Named(d5.CustomPythonOp):
        def __init__(self) -> None:
            super().__init__()
            self.name = "mine"

        def _forward(self, x: Any) -> Any:
            return x + 1

        def forward(self, x: Any) -> Any:
            return self._forward(x)

    np.testing.assert_array_equal(d5fw.custom_op(Named)(X), X + 1)


def test_an_operator_travels_by_pickle() -> None:
    """What it remembers of calls stays behind."""
    op = BothOp("float32")
    a = np.ones((2, 2), "float32")
    d5fw.custom_op(op)(a, a)
    copy = pickle.loads(pickle.dumps(op))
    np.testing.assert_array_equal(d5fw.custom_op(copy)(a, a)[1], 2 * a)


def test_the_tutorials_descriptors_are_understood() -> None:
    """`d5.tensordesc(100, d5.float32)`, in either order."""
    expected = d5.TensorDescriptor("float32", (100,))
    assert d5.tensordesc(100, d5.float32) == d5.tensordesc("float32", [100]) == expected
    assert d5.tensordesc.runtime_shape(d5.bfloat16) == d5.TensorDescriptor("bfloat16", None)
