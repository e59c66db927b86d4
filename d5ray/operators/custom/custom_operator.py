"""CustomOp: the base of custom operators in Python and C++"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, Arrays, Gradients
from d5ray.operators.custom.returned_values import told
from d5ray.operators.tensors.descriptor_fit import bound, is_known, substituted
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor


class CustomOp(ABC):
    """A custom operator, independent of frameworks: `d5fw.custom_op(op)` makes it an operation of one.

    Descriptors give the types and shapes of inputs and outputs; None if unknown. Sizes may be names, whose
    values follow from the inputs.
    """

    input_descriptors: tuple[TensorDescriptor, ...] | None = None
    output_descriptors: tuple[TensorDescriptor, ...] | None = None

    @property
    def operator_name(self) -> str:
        """The operator's name in errors."""
        return type(self).__name__

    @property
    def num_inputs(self) -> int:
        """Raises `ConfigurationError` where the operator has no descriptors."""
        return len(self._known(self.input_descriptors))

    @property
    def num_outputs(self) -> int:
        """Raises `ConfigurationError` where the operator has no descriptors."""
        return len(self._known(self.output_descriptors))

    @property
    @abstractmethod
    def differentiable(self) -> bool:
        """True if the operator has a `backward`."""

    @abstractmethod
    def run_forward(self, xp: Any, inputs: Sequence[Array | None]) -> Arrays:
        """The outputs, arrays of the array module `xp` as the inputs are, checked against the descriptors."""

    @abstractmethod
    def run_backward(
        self, xp: Any, grads: Sequence[Array], inputs: Sequence[Array | None], outputs: Sequence[Array]
    ) -> Gradients:
        """The gradients with respect to the inputs, None where there is none, checked against the inputs.

        grads: with respect to every output, zeros if nothing depends on it. Raises `ConfigurationError` if
        the operator has no `backward`.
        """

    def infer(self, inputs: Sequence[TensorDescriptor | None]) -> tuple[TensorDescriptor, ...] | None:
        """The outputs' descriptors, given what is known about the inputs; None if they are unknown.

        The default uses the operator's descriptors; override it if sizes are computed from sizes.
        Raises `ConfigurationError` if the inputs do not fit.
        """
        if self.output_descriptors is None:
            return None
        expected = self.input_descriptors
        sizes = {} if expected is None else bound(self.operator_name, expected, inputs)
        return substituted(self.output_descriptors, sizes)

    def inferred(self, inputs: Sequence[TensorDescriptor | None]) -> tuple[TensorDescriptor, ...] | None:
        """`infer`, and a check of what it gives, since users write it."""
        found = told(self.operator_name, "infer", self.infer, inputs)
        if found is None:
            return None
        outputs = tuple(found) if isinstance(found, (list, tuple)) else (found,)
        for output in outputs:
            if not isinstance(output, TensorDescriptor):
                raise ConfigurationError(
                    f"infer of the operator {self.operator_name} gave {output!r}, expected a "
                    "TensorDescriptor for each output, or None where nothing can be said"
                )
        return outputs

    def described(self, inputs: Sequence[TensorDescriptor | None]) -> tuple[TensorDescriptor, ...]:
        """`inferred`, with all sizes known. Raises `ConfigurationError` if they are not."""
        outputs = self.inferred(inputs)
        if outputs is None or not all(is_known(output) for output in outputs):
            raise ConfigurationError(
                f"the operator {self.operator_name} does not say what its outputs are for the inputs "
                f"{', '.join(map(str, inputs))}: give descriptors whose sizes follow from the inputs, or "
                "define infer(inputs)"
            )
        return outputs

    def _known(self, descriptors: tuple[TensorDescriptor, ...] | None) -> tuple[TensorDescriptor, ...]:
        if descriptors is None:
            raise ConfigurationError(
                f"the operator {self.operator_name} has no descriptors: give those of its inputs and "
                "outputs to super().__init__"
            )
        return descriptors


def without_gradient(operator: str) -> ConfigurationError:
    """The error where a gradient is asked for that nobody has defined."""
    return ConfigurationError(
        f"the operator {operator} has no backward, but a gradient with respect to its inputs is needed: "
        "define backward, or compute it where no gradient is needed"
    )


def twice(operator: str) -> ConfigurationError:
    """The error where a gradient is differentiated again, which no operator of one's own says how to."""
    return ConfigurationError(
        f"the gradient of the operator {operator} is differentiated again, but its backward says how to "
        "differentiate once: compute second derivatives without it"
    )


def checked_descriptors(
    operator: str, what: str, descriptors: Sequence[TensorDescriptor] | None
) -> tuple[TensorDescriptor, ...] | None:
    """The descriptors as a tuple. Raises `ConfigurationError` for anything else than descriptors."""
    if descriptors is None:
        return None
    if isinstance(descriptors, (list, tuple)) and all(
        isinstance(each, TensorDescriptor) for each in descriptors
    ):
        return tuple(descriptors)
    raise ConfigurationError(
        f"the descriptors of the {what} of the operator {operator} are {descriptors!r}, expected a list with "
        "a d5ray.TensorDescriptor(type, shape) for each"
    )


@final
class CallState:
    """The attributes that one call of an operator's forward pass sets, which its own backward pass is to see.

    An operator that is called twice before it runs backwards, as where a network uses it in two places, has
    those of the second call by then.
    """

    def __init__(self, op: CustomOp) -> None:
        self._own: dict[str, Any] = vars(op)
        self._before = dict(self._own)

    def note(self) -> None:
        """Take notice of what the forward pass, now over, has set."""
        self._set = {name: v for name, v in self._own.items() if self._before.get(name, self) is not v}

    @contextmanager
    def again(self) -> Iterator[None]:
        """The attributes as that forward pass left them; afterwards those of now, but for what was set."""
        now = {name: self._own[name] for name in self._set if name in self._own}
        self._own.update(self._set)
        try:
            yield
        finally:
            self._own.update({name: v for name, v in now.items() if self._own[name] is self._set[name]})
