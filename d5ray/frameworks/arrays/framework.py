"""NumPy and CuPy, for checking and measuring operators: what the catalogue has for array modules"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.custom.custom_operator import CustomOp
from d5ray.operators.framework import Call, Framework, Numbers, Pullback, Tensor, as_tuple, lacking
from d5ray.operators.nodes.bound_operator import BoundOperator
from d5ray.operators.nodes.node_context import Kernel, NodeContext
from d5ray.ops.arrays import OPERATORS
from d5ray.ops.custom.arrays import ArrayOperation


class ArrayFramework(Framework, ABC):
    """An array module: what it has no gradient of brings its own."""

    @property
    @abstractmethod
    def xp(self) -> Any:
        """The array module: NumPy or CuPy."""

    @classmethod
    def of(cls, arrays: Sequence[Tensor]) -> Self:
        return cls()

    @property
    def version(self) -> str:
        return str(self.xp.__version__)

    @final
    def copying(self, source: Tensor) -> Call:
        target = self.xp.empty_like(source)
        return lambda: self.xp.copyto(target, source)

    @final
    def array(self, values: Numbers) -> Tensor:
        return self.xp.array(values)

    @final
    def linearized(
        self, operator: Any, inputs: Sequence[Numbers | None]
    ) -> tuple[tuple[Numbers, ...], Pullback]:
        _check_gradient(operator)
        given = [None if each is None else self.array(each) for each in inputs]
        outputs = as_tuple(operator.forward(given))

        def pullback(gradients: Sequence[Numbers | None]) -> list[Numbers | None]:
            cotangents = [None if each is None else self.array(each) for each in gradients]
            if not isinstance(operator, BoundOperator):  # which is content with None
                cotangents = [
                    self.xp.zeros_like(output) if each is None else each
                    for each, output in zip(cotangents, outputs, strict=True)
                ]
            found = as_tuple(operator.backward(cotangents, given, outputs))
            return [None if each is None else self.numbers(each) for each in found]

        return tuple(map(self.numbers, outputs)), pullback

    @final
    def custom(self, operator: CustomOp) -> ArrayOperation:
        return ArrayOperation(self.xp, operator)

    @final
    def built(self, context: NodeContext) -> Kernel:
        if context.node.type not in OPERATORS:
            raise lacking(self.name, context)
        return BoundOperator(OPERATORS[context.node.type], context)

    @final
    def inference(self, function: Kernel, inputs: Sequence[Tensor]) -> Call:
        return lambda: function(*inputs)

    @final
    def training(self, function: Kernel, inputs: Sequence[Tensor], gradient: Tensor) -> Call:
        _check_gradient(function)
        operator: Any = function

        def call() -> object:
            outputs = as_tuple(operator.forward(inputs))
            others: list[Any] = [None] * (len(outputs) - 1)
            if not isinstance(operator, BoundOperator):  # which is content with None
                others = [self.xp.zeros_like(each) for each in outputs[1:]]
            return operator.backward([gradient, *others], inputs, outputs)

        return call


def _check_gradient(operator: Any) -> None:
    if not hasattr(operator, "forward") or not hasattr(operator, "backward"):
        raise ConfigurationError(
            f"{operator!r} has no gradient: give an object with forward(inputs) and backward(gradients, "
            "inputs, outputs), such as a CustomPythonOp, or a function of a framework that differentiates"
        )


@final
class NumPyFramework(ArrayFramework):
    """NumPy on the processor, for checking and measuring operators."""

    name: ClassVar[str] = "numpy"

    @classmethod
    def on(cls, device: str) -> Self:
        if device != "cpu":
            raise ConfigurationError(f"NumPy computes on the CPU alone, not on {device!r}: take cupy there")
        return cls()

    @property
    def xp(self) -> Any:
        return np

    @property
    def threads(self) -> int:
        from threadpoolctl import threadpool_info  # noqa: PLC0415 - only a measurement asks

        pools = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
        return max(pools, default=1)

    def use_threads(self, count: int) -> None:
        from threadpoolctl import threadpool_limits  # noqa: PLC0415

        threadpool_limits(count, "blas")

    def numbers(self, array: Tensor) -> Numbers:
        return np.array(array)

    def synchronize(self) -> None:
        pass


@final
class CuPyFramework(ArrayFramework):
    """CuPy on a GPU, for checking and measuring operators."""

    name: ClassVar[str] = "cupy"

    @classmethod
    def on(cls, device: str) -> Self:
        if device != "cuda":
            raise ConfigurationError(f"CuPy computes on a GPU alone, not on {device!r}: take numpy there")
        made = cls()
        try:
            made.xp.cuda.runtime.getDeviceCount()  # where there is none, that is an error of CUDA's
        except made.xp.cuda.runtime.CUDARuntimeError as error:
            raise ConfigurationError(f"CuPy finds no GPU ({error}): take another device") from error
        return made

    @property
    def xp(self) -> Any:
        import cupy  # noqa: PLC0415 - where its arrays are

        return cupy

    @property
    def threads(self) -> int:
        return 1

    def use_threads(self, count: int) -> None:
        pass

    def numbers(self, array: Tensor) -> Numbers:
        return np.array(self.xp.asnumpy(array))

    def synchronize(self) -> None:
        self.xp.cuda.get_current_stream().synchronize()
