"""compile_custom_cppop: the function that makes an operator of C++ code"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from d5ray.operators.custom.cpp.custom_cpp import NOTHING, CustomCppOp, Inference
from d5ray.operators.custom.cpp.library import Arguments
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor


def compile_custom_cppop(
    name: str,
    source: str | Path,
    inputs: Sequence[TensorDescriptor],
    outputs: Sequence[TensorDescriptor],
    *,
    definitions: Mapping[str, object] = NOTHING,
    arguments: Arguments = (),
    flags: Sequence[str] | None = None,
    compiler: str | None = None,
    infer: Inference | None = None,
) -> CustomCppOp:
    """Compile a class of C++ that derives from `deep500::CustomOperator`, or take it as it was compiled.

    name: of the class. A template of one type is taken for the element type of the first input; any other
    is named with its arguments, "conv<float, 3>".
    source: the code, or the path of its file; a file that ends with .cu is CUDA, and compiled by nvcc.
    inputs, outputs: their types, and their shapes, in which sizes can be names: one object of the class is
    made for every set of input shapes. infer: gives the outputs' descriptors from the inputs', where names
    do not say it.
    definitions: of the preprocessor, {"DPOWER": 2}. arguments: of the constructor, numbers, booleans and
    texts, or a function that gives them for the inputs' descriptors; it is asked once while compiling, with
    1 for sizes that are open. flags: of the compiler, instead of -O3 -march=native -fopenmp, as far as it
    knows them. compiler: a command, instead of $CXX, c++, g++ or clang++.

    Raises `ConfigurationError` where there is no compiler or what is given does not fit, `OperatorError` with
    the compiler's message about the user's code, `StorageError` where D5RAY_HOME cannot be written.
    """
    return CustomCppOp(
        name,
        source,
        inputs,
        outputs,
        definitions=definitions,
        arguments=arguments,
        flags=flags,
        compiler=compiler,
        infer=infer,
    )
