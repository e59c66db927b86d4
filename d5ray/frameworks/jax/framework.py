"""JAX, for checking and measuring operators; importing this imports jax"""

from collections.abc import Sequence
from typing import Any, ClassVar, Self, final

import jax
import jax.numpy as jnp
import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.frameworks.jax.library import Computing, use_threads
from d5ray.networks.device import CPUDevice, GPUDevice
from d5ray.operators.custom.custom_operator import CustomOp
from d5ray.operators.framework import Call, Framework, Numbers, Pullback, Tensor, as_tuple, lacking
from d5ray.operators.nodes.node_context import Kernel, NodeContext


@final
class JaxFramework(Framework):
    """Arrays on one device, differentiated by `jax.vjp`; measured as a compiled program, to its end."""

    name: ClassVar[str] = "jax"

    def __init__(self, device: CPUDevice | GPUDevice) -> None:
        self._device, self._threads = device, 0

    @classmethod
    def of(cls, arrays: Sequence[Tensor]) -> Self:
        (device,) = arrays[0].devices()
        return cls(CPUDevice() if device.platform == "cpu" else GPUDevice(device.local_hardware_id))

    @classmethod
    def on(cls, device: str) -> Self:
        made = cls(GPUDevice() if device == "cuda" else CPUDevice())
        if device == "cuda":
            made._computing()
        return made

    @property
    def version(self) -> str:
        return str(jax.__version__)

    @property
    def threads(self) -> int:
        return self._threads if isinstance(self._device, CPUDevice) else 1

    def use_threads(self, count: int) -> None:
        self._threads = count
        use_threads(count)

    def copying(self, source: Tensor) -> Call:
        return self._compiled(jnp.copy, [source])

    def array(self, values: Numbers) -> Tensor:
        computing = self._computing(values)
        with computing():
            return jax.device_put(np.array(values), computing.device)

    def numbers(self, array: Tensor) -> Numbers:
        return np.array(array)

    def synchronize(self) -> None:
        """Return at once: every call waits for what it computes."""

    def linearized(
        self, operator: Any, inputs: Sequence[Numbers | None]
    ) -> tuple[tuple[Numbers, ...], Pullback]:
        computing = self._computing(*inputs)
        leaves = [None if each is None else self.array(each) for each in inputs]
        wanted = _floating(leaves)
        with computing():
            outputs, pull = jax.vjp(_of(operator, leaves, wanted), *(leaves[at] for at in wanted))

        def pullback(gradients: Sequence[Numbers | None]) -> list[Numbers | None]:
            with computing():
                cotangents = tuple(map(_cotangent, outputs, gradients))
                found: list[Numbers | None] = [None] * len(leaves)
                for at, slope in zip(wanted, pull(cotangents), strict=True):
                    found[at] = self.numbers(slope)
            return found

        return tuple(map(self.numbers, outputs)), pullback

    def custom(self, operator: CustomOp) -> Any:
        raise ConfigurationError(
            f"{type(operator).__name__} is an operator of d5ray's, which JAX cannot call: leave jax out"
        )

    def called(self, operator: Any, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        with self._computing(*inputs)():
            return super().called(operator, inputs)

    def built(self, context: NodeContext) -> Kernel:
        """A product of two matrices, by which the peak is measured: the catalogue has nothing for JAX."""
        if context.node.type != "Gemm" or context.has_input(2) or context.attribute("alpha", 1.0) != 1.0:
            raise lacking(self.name, context)
        left, right = context.attribute("transA", 0), context.attribute("transB", 0)
        return lambda a, b: (a.T if left else a) @ (b.T if right else b)

    def inference(self, function: Kernel, inputs: Sequence[Tensor]) -> Call:
        return self._compiled(function, inputs)

    def training(self, function: Kernel, inputs: Sequence[Tensor], gradient: Tensor) -> Call:
        wanted = _floating(inputs)
        if not wanted:
            raise ConfigurationError("it has no gradient: none of its inputs is of floating-point numbers")

        def step(*given: Tensor) -> Any:
            outputs, pull = jax.vjp(_of(function, given, wanted), *(given[at] for at in wanted))
            cotangents = (gradient, *(_cotangent(each, None) for each in outputs[1:]))
            return *pull(cotangents), outputs[0]  # else the compiler would leave the forward pass out

        return self._compiled(step, inputs)

    def _computing(self, *values: Any) -> Computing:
        """The settings of a computation with these values: JAX has float64 only where it is asked for."""
        return Computing(
            self._device, double=any(getattr(each, "dtype", None) == np.float64 for each in values)
        )

    def _compiled(self, function: Kernel, inputs: Sequence[Tensor]) -> Call:
        with self._computing(*inputs)():
            program = jax.jit(lambda *given: function(*given)).lower(*inputs).compile()
        return lambda: jax.block_until_ready(program(*inputs))


def _floating(inputs: Sequence[Tensor | None]) -> list[int]:
    return [
        at for at, each in enumerate(inputs) if each is not None and jnp.issubdtype(each.dtype, jnp.floating)
    ]


def _of(function: Kernel, inputs: Sequence[Tensor | None], wanted: Sequence[int]) -> Any:
    """The outputs as a function of the inputs that have a gradient."""

    def outputs(*given: Tensor) -> tuple[Tensor, ...]:
        own = dict(zip(wanted, given, strict=True))
        return as_tuple(function(*(own.get(at, each) for at, each in enumerate(inputs))))

    return outputs


def _cotangent(output: Tensor, gradient: Any) -> Any:
    """The gradient for an output as `jax.vjp` takes it; zeros where there is none."""
    if not jnp.issubdtype(output.dtype, jnp.floating):
        return np.zeros(output.shape, jax.dtypes.float0)
    return jnp.zeros_like(output) if gradient is None else jnp.asarray(gradient, output.dtype)
