"""Operators of one's own on a GPU: CuPy's arrays, PyTorch's tensors, CUDA"""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d5ray as d5
import d5ray.frameworks.cupy as d5fw
from d5ray.errors import ConfigurationError, OperatorError
from tests.operators.custom.listings import BothOp, IPowOp, both

DOUBLED = """
#include <cuda_runtime.h>
template <typename T> __global__ void twice(const T *x, T *y, uint64_t n) {
    const uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x;
    if (i < n) y[i] = x[i] * 2;
}
template <typename T> class doubled : public deep500::CustomOperator {
    uint64_t n;

public:
    int64_t launched = 0;
    doubled(const deep500::tensor_t *x, int, const deep500::tensor_t *, int) : n(x->elements()) {}
    bool supports_cuda() override { return true; }
    int64_t report(void *) override { return launched; }
    void forward(const T *x, T *y) {
        for (uint64_t i = 0; i < n; ++i) y[i] = x[i] * 2;
    }
    void backward(const T *g, const T *, const T *, T *gradient) { forward(g, gradient); }
    void forward_cuda(const T *x, T *y) {
        ++launched;
        twice<T><<<(n + 255) / 256, 256, 0, cudaStream_t(deep500::current_stream())>>>(x, y, n);
    }
    void backward_cuda(const T *g, const T *, const T *, T *gradient) { forward_cuda(g, gradient); }
};
"""
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")


@pytest.fixture
def cupy() -> Any:
    """CuPy, where it has a GPU."""
    module = pytest.importorskip("cupy")
    try:
        module.zeros(1)
    except module.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(str(error))
    return module


def doubled(folder: Path, dtype: str) -> d5.CustomCppOp:
    """2 x, on both sides."""
    path = folder / "doubled.cu"
    path.write_text(DOUBLED)
    tensor = d5.TensorDescriptor(dtype, ("n",))
    return d5.compile_custom_cppop("doubled", path, [tensor], [tensor])


@pytest.mark.slow
@needs_nvcc
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_cuda_is_compiled_also_without_a_gpu(tmp_path: Path, dtype: str) -> None:
    """By nvcc; the same class computes in host memory, and says that it runs on a GPU."""
    op = doubled(tmp_path, dtype)
    x = np.arange(4).astype(d5.TensorDescriptor(dtype).dtype)
    np.testing.assert_array_equal(op.forward(x), x + x)
    instance = op.instance(((4,),))
    assert instance.runs_on_cuda
    assert instance.differentiable_on_cuda


@pytest.mark.slow
@needs_nvcc
def test_an_error_in_cuda_names_the_file_and_the_line(tmp_path: Path) -> None:
    """As nvcc tells it."""
    path = tmp_path / "wrong.cu"
    path.write_text(DOUBLED.replace("y[i] = x[i] * 2;\n}", "z[i] = x[i] * 2;\n}", 1))
    tensor = d5.TensorDescriptor("float32", ("n",))
    with pytest.raises(OperatorError) as error:
        d5.compile_custom_cppop("doubled", path, [tensor], [tensor])
    assert f"{path}(5): error:" in str(error.value)


def test_without_a_gpu_cupy_is_refused() -> None:
    """With what is missing; where there is a GPU, there is nothing to refuse."""
    try:
        import cupy  # noqa: PLC0415

        cupy.zeros(1)
    except ImportError:
        message = r"cupy is not there .*pip install 'd5ray\[cuda\]'"
    except cupy.cuda.runtime.CUDARuntimeError:
        message = "CuPy finds no GPU"
    else:
        pytest.skip("there is a GPU")
    with pytest.raises(ConfigurationError, match=message):
        d5fw.custom_op(IPowOp(2))


def test_operators_in_python_get_cupys_arrays(cupy: Any) -> None:
    """Nothing leaves the GPU."""
    x = cupy.arange(1, 4, dtype="float32")
    power = d5fw.custom_op(IPowOp(3))
    output = power(x)
    assert isinstance(output, cupy.ndarray)
    cupy.testing.assert_array_equal(output, x**3)
    (gradient,) = power.backward([x], [x], [output])
    cupy.testing.assert_array_equal(gradient, 3 * x**3)


def test_operators_in_cpp_go_by_way_of_host_memory(cupy: Any) -> None:
    """Where their class says nothing of a GPU."""
    a = cupy.arange(6, dtype="float64").reshape(2, 3)
    pair = d5fw.custom_op(both("float64"))
    product, total = pair(a, a.T.copy().T)
    cupy.testing.assert_array_equal(product, a * a)
    of_a, of_b = pair.backward([a, a], [a, a], [product, total])
    cupy.testing.assert_array_equal(of_a, a * a + a)
    cupy.testing.assert_array_equal(of_b, a * a + a)


@needs_nvcc
def test_operators_in_cuda_stay_on_the_gpu(cupy: Any, tmp_path: Path) -> None:
    """On the current stream, forwards and backwards."""
    op = doubled(tmp_path, "float32")
    operation = d5fw.custom_op(op)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        x = cupy.arange(1000, dtype="float32")
        output = operation(x)
        (gradient,) = operation.backward([x], [x], [output])
        stream.synchronize()
    cupy.testing.assert_array_equal(output, 2 * x)
    cupy.testing.assert_array_equal(gradient, 2 * x)
    assert op.report() == 2


def test_tensors_on_a_gpu_pass_through_any_operator(cupy: Any) -> None:
    """PyTorch's, to and from CuPy without a copy, with their gradients."""
    import torch  # noqa: PLC0415

    import d5ray.frameworks.torch as d5torch  # noqa: PLC0415

    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    for op in (BothOp("float64"), both("float64")):
        a = torch.rand(2, 3, dtype=torch.float64, device="cuda", requires_grad=True)
        product, total = d5torch.custom_op(op)(a, a)
        (product.sum() + total.sum()).backward()
        torch.testing.assert_close(a.grad, 2 * a.detach() + 2)
