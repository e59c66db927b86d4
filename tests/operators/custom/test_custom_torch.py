"""Operators of one's own in PyTorch: autograd, types, memory, torch.compile, what goes wrong"""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5
import d5ray.frameworks.torch as d5fw
from d5ray.errors import ConfigurationError, OperatorError
from tests.operators.custom.listings import QUICK, BothOp, IPowOp, both, ipowop
from tests.operators.custom.test_custom_frameworks import KINDS, PAIRS, each_kind


def operation(kind: str, dtype: str = "float64") -> Any:
    """x^3."""
    return d5fw.custom_op(KINDS[kind](dtype))


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
