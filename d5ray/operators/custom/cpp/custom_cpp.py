"""CustomCppOp: a custom operator in C++"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, final

import numpy as np

from d5ray.checks import check_kind, check_names, check_text, shown
from d5ray.errors import ConfigurationError, OperatorError
from d5ray.operators.array_operator import Array, Arrays, Gradients
from d5ray.operators.custom.cpp import on_device
from d5ray.operators.custom.cpp.built_operators import BuildRecipe
from d5ray.operators.custom.cpp.compilers import find
from d5ray.operators.custom.cpp.library import Argument, Arguments, Instance, Library, kinds, with_sizes
from d5ray.operators.custom.cpp.source import source_of
from d5ray.operators.custom.cpp.wrapper import Interface
from d5ray.operators.custom.custom_operator import CustomOp, checked_descriptors, without_gradient
from d5ray.operators.custom.returned_values import dense, described, is_real, told
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

Inference = Callable[[Sequence[TensorDescriptor | None]], Sequence[TensorDescriptor] | None]
Shape = tuple[int, ...]
NOTHING: Mapping[str, object] = MappingProxyType({})
_KEPT = 256  # objects for as many shapes


@final
class CustomCppOp(CustomOp):
    """A compiled class of C++, with one object for each set of input shapes that it meets.

    Other Python threads can run during calls, which use as many OpenMP threads as the framework does. The
    operator is sent between processes as its code, and compiled once on each machine.
    """

    def __init__(
        self,
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
    ) -> None:
        """See `compile_custom_cppop` for the arguments."""
        _check(name, definitions, flags, compiler, infer)
        options = {"definitions": dict(definitions), "arguments": arguments, "flags": flags}
        self._given = name, source, inputs, outputs, {**options, "compiler": compiler, "infer": infer}
        self._class_name, self._arguments, self._infer = name, arguments, infer
        for what, descriptors in (("inputs", inputs), ("outputs", outputs)):
            check_kind(what, descriptors, list | tuple, "a list of TensorDescriptors")
        self.input_descriptors = checked_descriptors(name, "inputs", inputs)
        self.output_descriptors = checked_descriptors(name, "outputs", outputs)
        assert self.input_descriptors is not None and self.output_descriptors is not None
        self._kinds = kinds(name, self._constructed_with(with_sizes(self.input_descriptors)))
        interface = Interface(name, self.input_descriptors, self.output_descriptors, self._kinds)
        origin = source_of(name, source)
        recipe = BuildRecipe(interface, origin, dict(definitions), flags, find(compiler, cuda=origin.is_cuda))
        self.library = _loaded(recipe, interface)
        self._instances: dict[tuple[Shape, ...], Instance] = {}

    @property
    def operator_name(self) -> str:
        return self._class_name

    @property
    def differentiable(self) -> bool:
        return self.library.differentiable

    def infer(self, inputs: Sequence[TensorDescriptor | None]) -> tuple[TensorDescriptor, ...] | None:
        """The outputs' descriptors, by those given, and then by the function that was given for it."""
        by_descriptors = super().infer(inputs)
        if self._infer is None:
            return by_descriptors
        found = self._infer(inputs)
        return None if found is None else tuple(found)

    def forward(self, *inputs: Array) -> Any:
        """The output for NumPy arrays, or a tuple of them."""
        outputs = self.run_forward(np, [np.asarray(each) for each in inputs])
        return outputs[0] if len(outputs) == 1 else outputs

    def backward(
        self, grads: Sequence[Array], fwd_inputs: Sequence[Array], fwd_outputs: Sequence[Array]
    ) -> Gradients:
        """The gradients with respect to the inputs, for NumPy arrays."""
        return self.run_backward(np, grads, fwd_inputs, fwd_outputs)

    def report(self, data: int | None = None) -> int:
        """The sum of what the operator's objects report, such as bytes communicated.

        data: an address for the C++ class, as from `ctypes.addressof`.
        """
        return sum(instance.report(data) for instance in tuple(self._instances.values()))

    def run_forward(self, xp: Any, inputs: Sequence[Array | None], threads: int = 0) -> Arrays:
        """The outputs of the C++ object. threads: of OpenMP, 0 for its own number (OMP_NUM_THREADS)."""
        if xp is not np:
            return on_device.forward(self, xp, self.checked(inputs))
        arrays = [dense(array) for array in self.checked(inputs)]
        instance = self.instance(tuple([array.shape for array in arrays]))
        outputs = tuple([np.empty(each.sizes, each.dtype) for each in instance.outputs])
        pointers = [array.ctypes.data for array in (*arrays, *outputs)]
        if self.library.forward(instance.handle, threads, *pointers):
            raise self.library.failed("forward")
        return outputs

    def run_backward(
        self,
        xp: Any,
        grads: Sequence[Array],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
        threads: int = 0,
    ) -> Gradients:
        """The gradients of the C++ object. threads: of OpenMP, 0 for its own number (OMP_NUM_THREADS)."""
        if not self.differentiable:
            raise without_gradient(self.operator_name)
        if xp is not np:
            return on_device.backward(self, xp, grads, self.checked(inputs), outputs)
        arrays = [dense(array) for array in self.checked(inputs)]
        instance = self.instance(tuple([array.shape for array in arrays]))
        gradients = tuple([np.empty(array.shape, array.dtype) for array in arrays])
        read = [*map(dense, grads), *arrays, *map(dense, outputs)]
        pointers = [array.ctypes.data for array in (*read, *gradients)]
        if self.library.backward(instance.handle, threads, *pointers):
            raise self.library.failed("backward")
        return tuple([each if is_real(each.dtype) else None for each in gradients])

    def instance(self, shapes: tuple[Shape, ...]) -> Instance:
        """The object for inputs of these shapes, made at their first use.

        Raises `ConfigurationError` if they do not fit the descriptors, `OperatorError` if the constructor
        throws.
        """
        found = self._instances.get(shapes)
        return found if found is not None else self._new_instance(shapes)

    def _new_instance(self, shapes: tuple[Shape, ...]) -> Instance:
        expected = self.input_descriptors or ()
        if len(shapes) != len(expected):
            raise ConfigurationError(
                f"the operator {self.operator_name} takes {len(expected)} inputs, found {len(shapes)}"
            )
        inputs = [TensorDescriptor(each.dtype, shape) for each, shape in zip(expected, shapes, strict=True)]
        outputs = self.described(inputs)
        self._check_outputs(outputs)
        arguments = self._constructed_with(inputs)
        if kinds(self.operator_name, arguments) != self._kinds:
            raise ConfigurationError(
                f"the arguments of the operator {self.operator_name} are {tuple(arguments)} for the inputs "
                f"{', '.join(map(str, inputs))}, but were of the types "
                f"({', '.join(kind.__name__ for kind in self._kinds)}) when it was compiled: give the same "
                "number and types for all shapes"
            )
        if len(self._instances) >= _KEPT:
            self._instances.pop(next(iter(self._instances)))
        made = self._instances[shapes] = Instance(self.library, inputs, outputs, arguments)
        return made

    def _check_outputs(self, outputs: tuple[TensorDescriptor, ...]) -> None:
        compiled = [each.dtype for each in self.output_descriptors or ()]
        if [each.dtype for each in outputs] != compiled:
            raise ConfigurationError(
                f"infer of the operator {self.operator_name} gave outputs "
                f"{', '.join(map(str, outputs))}, but it was "
                f"compiled for the types {', '.join(map(str, compiled))}"
            )

    def _constructed_with(self, inputs: Sequence[TensorDescriptor]) -> Sequence[Argument]:
        if not callable(self._arguments):
            return self._arguments
        found: Sequence[Argument] = told(self._class_name, "arguments", self._arguments, *inputs)
        return found

    def checked(self, inputs: Sequence[Array | None]) -> Sequence[Array]:
        """The inputs. Raises `ConfigurationError` where one is missing or of another type."""
        expected = self.input_descriptors or ()
        if len(inputs) == len(expected) and all(
            array is not None and array.dtype == wanted.dtype
            for array, wanted in zip(inputs, expected, strict=True)
        ):
            return inputs
        for index, array in enumerate(inputs):
            if array is None:
                raise ConfigurationError(
                    f"the C++ operator {self.operator_name} needs its input {index}, which is left out"
                )
        self.infer([described(array) for array in inputs])  # says what does not fit
        raise ConfigurationError(
            f"the inputs of the operator {self.operator_name} do not fit its descriptors"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, self._given

    def __repr__(self) -> str:
        return f"CustomCppOp({self.operator_name}: {self.input_descriptors} -> {self.output_descriptors})"


def _loaded(recipe: BuildRecipe, interface: Interface) -> Library:
    try:
        return Library(recipe.library(), interface)
    except OSError as error:
        raise OperatorError(
            f"the C++ operator {interface.name} was compiled, but cannot be loaded: {error}; a library that "
            "it needs belongs into flags, as -L and -l, or on LD_LIBRARY_PATH"
        ) from error


def _remade(
    name: str, source: str | Path, inputs: Any, outputs: Any, given: Mapping[str, Any]
) -> CustomCppOp:
    return CustomCppOp(name, source, inputs, outputs, **given)


def _check(name: object, definitions: object, flags: object, compiler: object, infer: object) -> None:
    """Raise `ConfigurationError` for what no compiler could be given."""
    check_kind("name", name, str, "the name of a class of C++")
    check_kind("definitions", definitions, Mapping, "a dictionary, such as {'DPOWER': 2}")
    check_kind("compiler", compiler, str | None, "a command such as 'g++', or None")
    if flags is not None:
        for flag in check_names("flags", flags, "a list of the compiler's flags such as ['-O3']"):
            if "\0" in flag:
                raise ConfigurationError(f"flags has {shown(flag)}: leave the zero out")
            check_text("a flag", flag)
    if infer is not None and not callable(infer):
        raise ConfigurationError(f"infer is {shown(infer)}: it must be a function of descriptors, or None")
