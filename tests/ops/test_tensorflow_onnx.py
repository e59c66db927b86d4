"""The operators under TensorFlow: ONNX's own cases, call by call and in graphs"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from d5ray.operators.nodes.kernel_factory import Kernel
from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.catalogue import TYPES
from tests.ops.exceptions import listed, parameters, passing
from tests.ops.onnx_cases import Case, check, of_halves, one_node


@pytest.fixture(scope="module")
def builders() -> Any:
    """The table; TensorFlow is imported when the first test asks for it."""
    from d5ray.ops.tensorflow import FACTORIES  # noqa: PLC0415

    return FACTORIES


@pytest.fixture(scope="module")
def tf() -> Any:
    from d5ray.ops.tensorflow.library import tf  # noqa: PLC0415

    return tf


def tensors(tf: Any, case: Case) -> list[Any]:
    return [None if array is None else tf.constant(array) for array in case.inputs]


def arrays(case: Case, outputs: Any) -> tuple[Any, ...]:
    """The outputs as arrays; a node with one output gives a tensor, others a tuple."""
    assert isinstance(outputs, tuple) == (len(case.node.outputs) != 1)
    given = outputs if isinstance(outputs, tuple) else (outputs,)
    return tuple(None if tensor is None else tensor.numpy() for tensor in given)


def in_a_graph(tf: Any, case: Case, context: NodeContext, built: Kernel, opened: bool) -> Any:
    """What the function gives in a `tf.function`, traced with known shapes, or with the first sizes open."""
    inputs = tensors(tf, case)
    places = [index for index, tensor in enumerate(inputs) if tensor is not None]

    def call(*given: Any) -> Any:
        every: list[Any] = [None] * len(inputs)
        for index, tensor in zip(places, given, strict=True):
            every[index] = tensor
        return built(*every)

    signature = []
    for index in places:
        x = inputs[index]
        first_open = opened and x.shape.rank and index == places[0] and index not in context.constants
        signature.append(tf.TensorSpec([None, *x.shape[1:]] if first_open else x.shape, x.dtype))
    return tf.function(call, input_signature=signature)(*(inputs[index] for index in places))


@pytest.mark.parametrize("case", parameters("tensorflow", one_node()))
def test_a_case_of_onnx_passes(case: Case, tf: Any, builders: Any) -> None:
    """Eagerly, where nothing is known when the function is built: values, types and shapes as ONNX says."""
    outputs = builders[case.node.type](case.context)(*tensors(tf, case))
    check(case, arrays(case, outputs))


@pytest.mark.parametrize("case", parameters("tensorflow", of_halves()))
def test_a_case_in_16_bits_passes(case: Case, tf: Any, builders: Any) -> None:
    """As near as the type allows: within two of its steps, since ONNX's own reference rounds after every
    operation, and its tolerance is below bfloat16's precision."""
    steps = {"float16": 2.0**-9, "bfloat16": 2.0**-6}
    rtol = max(steps.get(x.dtype.name, 0) for x in (*case.inputs, *case.expected) if x is not None)
    outputs = builders[case.node.type](case.context)(*tensors(tf, case))
    check(replace(case, rtol=rtol), arrays(case, outputs))


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_the_determinant_of_a_matrix_in_16_bits(kind: str, tf: Any, builders: Any) -> None:
    """Of which ONNX has no case and TensorFlow no kernel: of small integers it is exact."""
    context = NodeContext(Node("Det", ("x",), ("y",)))
    found = builders["Det"](context)(tf.constant([[2, 1, 0], [0, 3, 1], [1, 0, 4]], kind))
    assert found.dtype.name == kind and float(found) == 25


def with_constants(case: Case) -> NodeContext:
    """The context in a network with all integers and booleans as constants, which knows what is made."""
    held = {i: x for i, x in enumerate(case.inputs) if x is not None and x.dtype.kind in "iub"}
    made = tuple(None if x is None else TensorDescriptor(x.dtype, None) for x in case.expected)
    return NodeContext(case.node, held, outputs=made, random=np.random.default_rng(0))


def one_of_each_type() -> list[Case]:
    """Of every type the case with the most inputs and outputs that passes."""
    found: dict[str, Case] = {}
    for case in one_node():
        best = found.get(case.node.type)
        if case.name not in listed("tensorflow") and (best is None or _length(case) > _length(best)):
            found[case.node.type] = case
    return list(found.values())


def _length(case: Case) -> int:
    return len(case.node.inputs) + len(case.node.outputs)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in one_of_each_type()])
def test_a_case_of_every_type_passes_in_a_graph(case: Case, tf: Any, builders: Any) -> None:
    """With the integers and booleans as the network's constants, and the first axis, the batch, open."""
    context = with_constants(case)
    outputs = in_a_graph(tf, case, context, builders[case.node.type](context), opened=True)
    check(case, arrays(case, outputs))


@pytest.mark.full
@pytest.mark.parametrize("case", parameters("tensorflow", one_node()))
def test_every_case_passes_in_a_graph(case: Case, tf: Any, builders: Any) -> None:
    """With the integers and booleans as the network's constants, and all shapes known."""
    context = with_constants(case)
    outputs = in_a_graph(tf, case, context, builders[case.node.type](context), opened=False)
    check(case, arrays(case, outputs))


def test_nearly_all_cases_pass(capsys: pytest.CaptureFixture[str]) -> None:
    """At least 95 %, the others being listed with their reasons."""
    cases = one_node()
    count = passing("tensorflow", cases)
    with capsys.disabled():
        share = f"{count} of {len(cases)} pass, {count / len(cases):.1%}"
        print(f"\nONNX's cases under TensorFlow: {share}")  # noqa: T201
    assert cases and count >= 0.95 * len(cases)


def test_every_type_is_there(builders: Any) -> None:
    """The table holds the catalogue's types and no other."""
    assert set(builders) == TYPES
