"""The custom operators of Deep500's slides, as printed, and some of other shapes"""

import math
from typing import Any

import d5ray as d5
from d5ray import CustomPythonOp

QUICK = ("-O1", "-fopenmp")  # compiles in half the time; the same everywhere, so that it is done once

IPOW = """\
class IPowOp(CustomPythonOp):
    def __init__(self, power):
        super(IPowOp, self).__init__()
        self.power = power
        assert int(power) == power # integral

    def forward(self, inputs):
        return inputs[0] ** self.power

    def backward(self, grads, fwd_inputs, fwd_outputs):
        return (grads[0] * self.power *
                (fwd_inputs[0] ** (self.power - 1)))
"""
_names: dict[str, Any] = {"CustomPythonOp": CustomPythonOp}
exec(IPOW, _names)
IPowOp: Any = _names["IPowOp"]

IPOWOP = """\
template<typename T>
class ipowop : public deep500::CustomOperator {
protected:
    int m_len;
public:
    ipowop(int len) : m_len(len) {}
    virtual ~ipowop() {}

    void forward(const T *input, T *output) {
        #pragma omp parallel for
        for (int i = 0; i < m_len; ++i)
            output[i] = std::pow(input[i], DPOWER);
    }

    void backward(const T *nextop_grad,
                  const T *fwd_input_tensor,
                  const T *fwd_output_tensor,
                  T *input_tensor_grad) {
        #pragma omp parallel for
        for (int i = 0; i < m_len; ++i) {
            input_tensor_grad[i] = nextop_grad[i] * DPOWER *
                std::pow(fwd_input_tensor[i], DPOWER - 1);
        }
    }
};
"""

# (a, b) -> (a * b, a + b), with the gradients of both; made from its tensors' sizes.
BOTH = """\
template <typename T>
class both : public deep500::CustomOperator {
    uint64_t length;

public:
    both(const deep500::tensor_t *inputs, int, const deep500::tensor_t *, int)
        : length(inputs[0].elements()) {}

    void forward(const T *a, const T *b, T *product, T *sum) {
        for (uint64_t i = 0; i < length; ++i) {
            product[i] = a[i] * b[i];
            sum[i] = a[i] + b[i];
        }
    }

    void backward(const T *of_product, const T *of_sum, const T *a, const T *b, const T *, const T *,
                  T *of_a, T *of_b) {
        for (uint64_t i = 0; i < length; ++i) {
            of_a[i] = of_product[i] * b[i] + of_sum[i];
            of_b[i] = of_product[i] * a[i] + of_sum[i];
        }
    }
};
"""


def elements(tensor: d5.TensorDescriptor) -> tuple[int]:
    """The argument of `ipowop`'s constructor."""
    return (math.prod(tensor.sizes),)


def ipowop(dtype: str, power: int = 3, **options: Any) -> d5.CustomCppOp:
    """The slide's class, for tensors with any number of axes."""
    anything = d5.TensorDescriptor(dtype, None)
    return d5.compile_custom_cppop(
        "ipowop",
        IPOWOP,
        [anything],
        [anything],
        **{"definitions": {"DPOWER": power}, "arguments": elements, "infer": same, "flags": QUICK, **options},
    )


def same(inputs: Any) -> Any:
    """The outputs of an operator that changes neither type nor shape."""
    return inputs


def both(dtype: str) -> d5.CustomCppOp:
    """Two inputs, two outputs."""
    tensor = d5.TensorDescriptor(dtype, ("rows", "columns"))
    return d5.compile_custom_cppop("both", BOTH, [tensor, tensor], [tensor, tensor], flags=QUICK)


class BothOp(CustomPythonOp):
    """The same in Python, in the original's form: one parameter an input, and descriptors."""

    def __init__(self, dtype: str) -> None:
        tensor = d5.TensorDescriptor(dtype, ("rows", "columns"))
        super().__init__([tensor, tensor], [tensor, tensor])

    def forward(self, a: Any, b: Any) -> Any:
        return a * b, a + b

    def backward(self, grads: Any, fwd_inputs: Any, fwd_outputs: Any) -> Any:
        return [grads[0] * fwd_inputs[1] + grads[1], grads[0] * fwd_inputs[0] + grads[1]]


class KeepingOp(CustomPythonOp):
    """x^2, whose backward pass takes x from an attribute that the forward pass has set."""

    def forward(self, inputs: Any) -> Any:
        self.kept = inputs[0].copy()
        return self.kept**2

    def backward(self, grads: Any, fwd_inputs: Any, fwd_outputs: Any) -> Any:
        return grads[0] * 2 * self.kept
