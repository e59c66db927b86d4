"""Framework: what checking and measuring an operator takes of a framework, on one device"""

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from d5ray.errors import ConfigurationError, nearest
from d5ray.operators.custom.custom_operator import CustomOp
from d5ray.operators.nodes.node_context import Kernel, NodeContext

Numbers = np.ndarray[Any, Any]
Tensor = Any  # of the framework
# From a gradient for every output, None where nothing depends on it, to one for every input, None where there
# is none.
Pullback = Callable[[Sequence[Numbers | None]], list[Numbers | None]]
Call = Callable[[], object]

FRAMEWORKS = {  # imported when asked for
    "numpy": ("d5ray.frameworks.arrays.framework", "NumPyFramework"),
    "torch": ("d5ray.frameworks.torch.framework", "TorchFramework"),
    "tensorflow": ("d5ray.frameworks.tensorflow.framework", "TensorFlowFramework"),
    "cupy": ("d5ray.frameworks.arrays.framework", "CuPyFramework"),
    "jax": ("d5ray.frameworks.jax.framework", "JaxFramework"),
}
PACKAGES = {
    "numpy": "pip install numpy",
    "torch": "pip install torch",
    "tensorflow": "pip install 'd5ray[tensorflow]'",
    "cupy": "pip install 'd5ray[cuda]'",
    "jax": "pip install 'd5ray[jax]'",
}


def not_installed(name: str) -> str:
    """The package that lacks, and how to get it; empty if the framework is there. It is not imported."""
    if importlib.util.find_spec(name) is None:
        return f"{name} is not installed: {PACKAGES[name]}"
    return ""


class Framework(ABC):
    """Arrays of one framework on one device, and functions of them.

    An operator is a function of arrays that gives one or a tuple of them; for NumPy and CuPy it may also be
    an object with `forward(inputs)` and `backward(gradients, inputs, outputs)`.
    """

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def of(cls, arrays: Sequence[Tensor]) -> "Framework":
        """The framework and device of these arrays."""

    @classmethod
    @abstractmethod
    def on(cls, device: str) -> "Framework":
        """The framework on 'cpu' or 'cuda'. Raises `ConfigurationError` if that is not there."""

    @property
    @abstractmethod
    def version(self) -> str:
        """The version of the installed framework."""

    @property
    @abstractmethod
    def threads(self) -> int:
        """The number of threads that an operator may take; 1 on a GPU."""

    @abstractmethod
    def use_threads(self, count: int) -> None:
        """Let operators on a CPU take that many; asked for before anything was computed."""

    @abstractmethod
    def copying(self, source: Tensor) -> Call:
        """A call that copies an array on the device."""

    @abstractmethod
    def array(self, values: Numbers) -> Tensor:
        """A copy of these values on the device, in their type."""

    @abstractmethod
    def numbers(self, array: Tensor) -> Numbers:
        """A copy of the values in the memory of the host, in their type; bfloat16 is that of `ml_dtypes`."""

    @abstractmethod
    def synchronize(self) -> None:
        """Return when the device has done all that was asked of it."""

    @abstractmethod
    def linearized(
        self, operator: Any, inputs: Sequence[Numbers | None]
    ) -> tuple[tuple[Numbers, ...], Pullback]:
        """The outputs at these inputs, and the operator's gradient there.

        Raises `ConfigurationError` where the operator has none.
        """

    @abstractmethod
    def built(self, context: NodeContext) -> Kernel:
        """The catalogue's function for this node. Raises `ConfigurationError` where it has none."""

    @abstractmethod
    def inference(self, function: Kernel, inputs: Sequence[Tensor]) -> Call:
        """A call that computes the outputs, as the framework's users do where nothing is trained."""

    @abstractmethod
    def training(self, function: Kernel, inputs: Sequence[Tensor], gradient: Tensor) -> Call:
        """A call that computes the outputs, and gradients for this one of the first output.

        Of all floating-point inputs, and of the parameters of a function that has some. Raises
        `ConfigurationError` for a function that has no gradient.
        """

    def counted_flops(self, call: Call) -> int:
        """The operations that the framework's own counter sees in a call; 0 where it has none."""
        return 0

    @abstractmethod
    def custom(self, operator: CustomOp) -> Any:
        """An operator of one's own as an operation of the framework."""

    def usable(self, operator: Any) -> Any:
        """The operator as the methods here take it."""
        return self.custom(operator) if isinstance(operator, CustomOp) else operator

    def called(self, operator: Any, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        """The operator's outputs, as it gives them, at arrays of the framework."""
        return as_tuple(operator(*inputs) if callable(operator) else operator.forward(list(inputs)))

    def outputs(self, operator: Any, inputs: Sequence[Tensor | None]) -> tuple[Numbers, ...]:
        """A copy of the operator's outputs at arrays of the framework."""
        return tuple(map(self.numbers, self.called(operator, inputs)))


def framework_of(arrays: Sequence[Tensor | None]) -> Framework:
    """The framework whose arrays these are. Raises `ConfigurationError` where that is none, or not one."""
    given = [array for array in arrays if array is not None]
    roots = {type(array).__module__.partition(".")[0].removesuffix("lib") for array in given}  # of jaxlib
    if len(roots) != 1 or not roots <= FRAMEWORKS.keys():
        found = ", ".join(sorted({f"{type(array).__module__}.{type(array).__name__}" for array in given}))
        raise ConfigurationError(
            f"the inputs are {found or 'none'}: give arrays of one of {', '.join(FRAMEWORKS)}, such as "
            "numpy.ones(3)"
        )
    return class_named(roots.pop()).of(given)


def class_named(name: str) -> type[Framework]:
    """The framework of this name; `ConfigurationError` says what to install where it is missing."""
    if name not in FRAMEWORKS:
        raise ConfigurationError(f"there is no framework {name!r}: {nearest(name, FRAMEWORKS)}")
    module, kind = FRAMEWORKS[name]
    try:
        import_module(name)
        found: type[Framework] = getattr(import_module(module), kind)
    except ImportError as error:
        raise ConfigurationError(f"{name} is not there ({error}): {PACKAGES[name]}") from error
    return found


def as_tuple(outputs: Any) -> tuple[Tensor, ...]:
    """The result of a call as a tuple, whether it is one array or several."""
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


def lacking(name: str, context: NodeContext) -> ConfigurationError:
    """The error for a type that a framework's part of the catalogue has not."""
    return ConfigurationError(f"the catalogue has no {context.node.type} for {name}: see d5ray.ops.catalogue")
