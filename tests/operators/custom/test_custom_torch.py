"""Operators of one's own in PyTorch: autograd, types, memory, torch.compile, what goes wrong"""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5
import d5ray.frameworks.torch as d5fw
from d5ray.errors import ConfigurationError, OperatorError
from tests.operators.custom.listings import QUICK, BothOp, IPowOp, KeepingOp, both, ipowop

REAL = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-6, "float64": 1e-14}
KINDS: dict[str, Callable[[str], d5.CustomOp]] = {"python": lambda dtype: IPowOp(3), "cpp": ipowop}
PAIRS: dict[str, Callable[[str], d5.CustomOp]] = {"python": BothOp, "cpp": both}
each_kind = pytest.mark.parametrize("kind", list(KINDS))


def operation(kind: str, dtype: str = "float64") -> Any:
    """x^3."""
    return d5fw.custom_op(KINDS[kind](dtype))


@each_kind
def test_gradients_pass_gradcheck(kind: str) -> None:
    """PyTorch's own comparison with central differences, of one and of several inputs and outputs."""
    generator = torch.Generator().manual_seed(0)
    a = torch.rand(2, 3, dtype=torch.float64, generator=generator).requires_grad_()
    b = torch.rand(2, 3, dtype=torch.float64, generator=generator).requires_grad_()
    assert torch.autograd.gradcheck(operation(kind), (a,))
    assert torch.autograd.gradcheck(d5fw.custom_op(PAIRS[kind]("float64")), (a, b))


@each_kind
@pytest.mark.parametrize("dtype", list(REAL))
def test_an_operator_equals_torchs_own_power(kind: str, dtype: str) -> None:
    """Values and gradients in the middle of a graph, for every type of floating-point numbers."""
    x = torch.linspace(0.5, 2, 12, dtype=getattr(torch, dtype)).reshape(3, 4).requires_grad_()
    power = operation(kind, dtype)
    results = []
    for function in (power, lambda each: torch.pow(each, 3)):
        output = function(x * 2)
        (gradient,) = torch.autograd.grad((output * 3).sum(), x)
        results.append((output, gradient))
    (found, found_gradient), (expected, expected_gradient) = results
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=4 * REAL[dtype], atol=0)
    torch.testing.assert_close(found_gradient, expected_gradient, rtol=8 * REAL[dtype], atol=0)


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["int64", "uint8"])
@each_kind
def test_whole_numbers_have_no_gradient(kind: str, dtype: str) -> None:
    """They are computed all the same."""
    x = torch.arange(4, dtype=getattr(torch, dtype))
    found = operation(kind, dtype)(x)
    assert torch.equal(found, x**3)
    assert not found.requires_grad


@each_kind
def test_strided_empty_and_scalar_tensors_are_taken(kind: str) -> None:
    """Transposed, every second, expanded, without elements, without axes; and gradients that are expanded."""
    power = operation(kind)
    x = torch.arange(12, dtype=torch.float64).reshape(3, 4)
    for each in (x.t(), x[::2, ::3], x[:, :1].expand(3, 5), x[:0], x[1, 1]):
        leaf = each.detach().requires_grad_()
        output = power(leaf)
        assert torch.equal(output, each**3)
        (gradient,) = torch.autograd.grad(output.sum(), leaf)
        assert torch.equal(gradient, 3 * each**2)


@each_kind
def test_a_result_has_memory_of_its_own(kind: str) -> None:
    """Changing it in place changes no input, also where an operator returns its input or a view of it."""

    class Same(d5.CustomPythonOp):
        def forward(self, inputs: Any) -> Any:
            return inputs[0], inputs[0][::-1], np.broadcast_to(inputs[0][:1], 3)

    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    results = (operation(kind)(x), *d5fw.custom_op(Same)(x))
    assert [each.tolist() for each in results] == [[1, 8, 27], [1, 2, 3], [3, 2, 1], [1, 1, 1]]
    for each in results:
        each.add_(1)
    assert x.tolist() == [1, 2, 3]


def test_a_tensor_in_host_memory_is_not_copied() -> None:
    """An operator in Python sees the tensor's own memory."""
    seen = []

    class Seen(d5.CustomPythonOp):
        def forward(self, x: Any) -> Any:
            seen.append(x.ctypes.data)
            return x + 1

    for dtype in (torch.float32, torch.bfloat16):
        x = torch.ones(3, dtype=dtype)
        d5fw.custom_op(Seen)(x)
        assert seen.pop() == x.data_ptr()


@each_kind
def test_outputs_that_nothing_depends_on_have_a_gradient_of_zeros(kind: str) -> None:
    """Of (a b, a + b) only the first is used."""
    a = torch.tensor([[2.0, 3.0]], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([[5.0, 7.0]], dtype=torch.float64, requires_grad=True)
    product, _ = d5fw.custom_op(PAIRS[kind]("float64"))(a, b)
    of_a, of_b = torch.autograd.grad(product.sum(), (a, b))
    assert torch.equal(of_a, b)
    assert torch.equal(of_b, a)


@pytest.mark.full
@each_kind
def test_a_compiled_function_gives_the_same(kind: str) -> None:
    """As one operation of the graph, forwards and backwards, for sizes that change."""
    pair = d5fw.custom_op(PAIRS[kind]("float64"))

    def loss(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        product, total = pair(a * 2, b)
        result: torch.Tensor = (product * total + 1).sum()
        return result

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True, dynamic=True)
    for columns in (3, 5, 4):
        a = torch.rand(2, columns, dtype=torch.float64, requires_grad=True)
        b = torch.rand(2, columns, dtype=torch.float64, requires_grad=True)
        expected = torch.autograd.grad(loss(a, b), (a, b))
        found = torch.autograd.grad(compiled(a, b), (a, b))
        torch.testing.assert_close(found, expected)
    torch.compiler.reset()


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch.compile looks at it
def test_an_operator_that_says_nothing_splits_a_compiled_graph() -> None:
    """The listing of the slides, which has no descriptors, gives what it gives without compiling."""
    power = operation("python")

    def loss(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = (power(x * 2) + 1).sum()
        return result

    x = torch.rand(3, dtype=torch.float64, requires_grad=True)
    found = torch.autograd.grad(torch.compile(loss, backend="aot_eager")(x), x)
    torch.testing.assert_close(found, torch.autograd.grad(loss(x), x))
    torch.compiler.reset()


def test_an_operator_passes_torchs_own_checks() -> None:
    """`torch.library.opcheck` of what stands in compiled graphs: schema, shapes, autograd, dynamic shapes."""
    pair = d5fw.custom_op(BothOp("float64"))
    assert pair.in_graphs is not None
    a = torch.rand(2, 3, dtype=torch.float64, requires_grad=True)
    torch.library.opcheck(pair.in_graphs, ([a, a.detach().clone().requires_grad_()],))


def test_a_module_with_an_operator_is_copied() -> None:
    """By `copy.deepcopy`, as those who average models do it, and by pickle."""

    class Power(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.power = d5fw.custom_op(ipowop("float32"))

    x = torch.arange(3.0)
    operation = Power().power
    for each in (copy.deepcopy(Power()).power, pickle.loads(pickle.dumps(operation))):
        assert torch.equal(each(x), x**3)


@pytest.mark.full
@each_kind
def test_a_missing_backward_is_told_when_a_gradient_is_needed(kind: str) -> None:
    """Not by the forward pass, not for what needs none."""

    class Doubled(d5.CustomPythonOp):
        def forward(self, x: Any) -> Any:
            return 2 * x

    anything = d5.TensorDescriptor("float64", (3,))
    code = "struct Doubled : deep500::CustomOperator { void forward(const double *x, double *y) {%s} };"
    body = "for (int i = 0; i < 3; ++i) y[i] = 2 * x[i];"
    op = (
        Doubled()
        if kind == "python"
        else d5.compile_custom_cppop("Doubled", code % body, [anything], [anything], flags=QUICK)
    )
    doubled = d5fw.custom_op(op)
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    output = doubled(x)
    assert output.tolist() == [2, 2, 2]
    with pytest.raises(ConfigurationError, match="the operator Doubled has no backward"):
        output.sum().backward()


def test_inputs_that_do_not_fit_are_told() -> None:
    """Another type, another number, no tensor."""
    power, pair = operation("cpp", "float32"), d5fw.custom_op(both("float64"))
    x = torch.ones(2, 3, dtype=torch.float64)
    with pytest.raises(
        ConfigurationError, match=r"ipowop is of the type torch.float64, expected torch.float32"
    ):
        power(x)
    with pytest.raises(ConfigurationError, match="both takes 2 inputs, found 1"):
        pair(x)
    with pytest.raises(ConfigurationError, match=r"columns is 3 elsewhere, and 2 on axis 1"):
        pair(x, x[:, :2])
    for each in (power, operation("python")):
        with pytest.raises(
            ConfigurationError, match=r"input 0 of the operator .* is a list, expected a torch.Tensor"
        ):
            each([1.0])


def test_wrong_results_are_told_also_from_the_backward_pass() -> None:
    """A gradient of another shape than the input's."""

    class Wrong(IPowOp):  # type: ignore[misc]
        def backward(self, grads: Any, fwd_inputs: Any, fwd_outputs: Any) -> Any:
            return grads[0][:1]

    x = torch.ones(3, requires_grad=True)
    with pytest.raises(
        OperatorError, match=r"Wrong gave float32 \(1,\) for input 0, which is float32 \(3,\)"
    ):
        d5fw.custom_op(Wrong(2))(x).sum().backward()


@each_kind
def test_second_derivatives_are_refused(kind: str) -> None:
    """Rather than left out of a sum, where nobody would notice; the first one is right all the same."""
    x = torch.full((3,), 2.0, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(operation(kind)(x).sum(), x, create_graph=True)
    assert first.tolist() == [12, 12, 12]
    with pytest.raises(
        ConfigurationError, match=r"the gradient of the operator .*(?i:pow).* is differentiated again"
    ):
        torch.autograd.grad(first.sum() + x.sum(), x)


def test_each_call_goes_backwards_with_what_its_own_forward_pass_kept() -> None:
    """Of one operator in two places, as of a function of PyTorch's, each call of which has a context."""
    op = KeepingOp()
    square = d5fw.custom_op(op)
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = torch.tensor([4.0, 5.0, 6.0], requires_grad=True)
    of_x, of_y = torch.autograd.grad((square(x) * square(square(y))).sum(), (x, y))
    np.testing.assert_allclose(of_x, (2 * x * y**4).detach())
    np.testing.assert_allclose(of_y, (4 * x**2 * y**3).detach())
    np.testing.assert_array_equal(op.kept, (y**2).detach())  # as the last forward pass left it


@pytest.mark.full
def test_openmp_uses_the_frameworks_number_of_threads() -> None:
    """As `torch.set_num_threads` says."""
    code = """
    struct counted : deep500::CustomOperator {
        void forward(const float *, int64_t *y) {
            #pragma omp parallel
            {
                #pragma omp single
                *y = omp_get_num_threads();
            }
        }
    };"""
    one, number = d5.TensorDescriptor("float32", (1,)), d5.TensorDescriptor("int64", (1,))
    counted = d5fw.custom_op(d5.compile_custom_cppop("counted", code, [one], [number], flags=QUICK))
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            assert counted(torch.ones(1)).item() == threads
    finally:
        torch.set_num_threads(before)
