"""Operators of one's own as operations of PyTorch, with automatic differentiation and torch.compile"""

import itertools
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, final

import torch

from d5ray.errors import ConfigurationError, D5Error
from d5ray.operators.custom.custom_operator import CallState, CustomOp, twice, without_gradient
from d5ray.operators.custom.registry import operator_of
from d5ray.operators.nodes.node_context import Kernel, NodeContext
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.custom.arrays import checked_number
from d5ray.ops.custom.torch_tensors import Runner, runner_of, torch_type

_numbers = itertools.count()


@final
class TorchOperation:
    """An operator as a function of tensors: it gives one, or a tuple where there are several outputs.

    It can be differentiated once. In `torch.compile` it is one operation of the graph where the operator says
    what its outputs are; where it does not, the graph is split around it.
    """

    def __init__(self, op: CustomOp) -> None:
        self.op = op
        self._runner = runner_of(op)
        self._differentiated = _function(op, self._runner)
        self.in_graphs = _library_operation(op, self._runner)
        self._compiled = self._outside if self.in_graphs is None else self._inside

    def __call__(self, *inputs: Any) -> Any:
        """Raises `ConfigurationError` for inputs that do not fit, `OperatorError` for wrong results."""
        if torch.compiler.is_compiling():
            return self._compiled(*inputs)
        try:
            if torch.is_grad_enabled():
                for each in inputs:
                    if each is not None and each.requires_grad:
                        return self._differentiated(*inputs)
            outputs = self._runner.forward(inputs)
        except AttributeError as error:
            raise _no_tensors(self.op, inputs) or error from None
        return outputs[0] if len(outputs) == 1 else outputs

    def _inside(self, *inputs: torch.Tensor) -> Any:
        assert self.in_graphs is not None
        outputs = self.in_graphs(list(inputs))
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    @torch.compiler.disable(reason="the operator does not say what its outputs are")  # type: ignore[untyped-decorator, no-untyped-call]
    def _outside(self, *inputs: torch.Tensor) -> Any:
        return self._differentiated(*inputs)

    def __reduce__(self) -> tuple[Any, ...]:
        return TorchOperation, (self.op,)

    def __repr__(self) -> str:
        return f"TorchOperation({self.op.operator_name})"


def built(context: NodeContext) -> Kernel:
    """The registered operator of the node. Raises `ConfigurationError` where there is none."""
    operation = TorchOperation(operator_of(context.node))

    def call(*inputs: Any) -> Any:
        try:
            outputs = operation(*inputs)
        except D5Error as error:
            raise type(error)(f"the node {context.node}: {error}") from error
        listed = outputs if isinstance(outputs, tuple) else (outputs,)
        checked_number(operation.op, context.node, len(listed))
        wanted = len(context.node.outputs)
        return listed[0] if wanted == 1 else listed[:wanted]

    return call


def _function(op: CustomOp, runner: Runner) -> Callable[..., Any]:
    """The function that automatic differentiation goes through."""

    def forward(ctx: Any, *inputs: torch.Tensor) -> Any:
        ctx.state = CallState(op)
        outputs = runner.forward(inputs)
        ctx.state.note()
        ctx.save_for_backward(*inputs, *outputs)
        ctx.given = len(inputs)
        whole = [each for each in outputs if not each.is_floating_point()]
        if whole:
            ctx.mark_non_differentiable(*whole)
        return outputs[0] if len(outputs) == 1 else outputs

    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        if not op.differentiable:
            raise without_gradient(op.operator_name)
        saved = ctx.saved_tensors
        inputs = saved[: ctx.given]
        with ctx.state.again():
            gradients = runner.backward(grads, inputs, saved[ctx.given :])
        if not torch.is_grad_enabled():
            return gradients
        there = [each for each in gradients if each is not None]
        once = iter(_Once.apply(op.operator_name, there, *grads, *inputs))  # type: ignore[no-untyped-call]
        return tuple([None if each is None else next(once) for each in gradients])

    # Of its own for every operator, so that tensors show its name: <IPowOpBackward>.
    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    made: Callable[..., Any] = type(_plain(op.operator_name), (torch.autograd.Function,), methods).apply  # type: ignore[attr-defined]
    return made


class _Once(torch.autograd.Function):
    """Gradients that are not differentiated again: that they are no constants would go unnoticed."""

    @staticmethod
    def forward(ctx: Any, operator: str, gradients: list[torch.Tensor], *origins: torch.Tensor) -> Any:
        ctx.operator = operator
        return tuple(gradients)

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> Any:
        raise twice(ctx.operator)


def _library_operation(op: CustomOp, runner: Runner) -> Any:
    """The operation of PyTorch's library that stands in graphs, if the operator says what its outputs are."""
    if op.output_descriptors is None and type(op).infer is CustomOp.infer:
        return None
    name = f"d5ray::{_plain(op.operator_name)}_{next(_numbers)}"

    def infer(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        found, symbols = _inferred(op, inputs)
        return [
            inputs[0].new_empty([symbols.get(size, size) for size in each.shape], dtype=torch_type(each))
            for each in found
        ]

    @torch.library.custom_op(f"{name}_backward", mutates_args=(), schema=_BACKWARD)
    def backward(grads: list[torch.Tensor], inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> Any:
        found = runner.backward(grads, inputs, outputs)
        return [
            torch.zeros_like(given) if each is None else each
            for each, given in zip(found, inputs, strict=True)
        ]

    @torch.library.custom_op(name, mutates_args=(), schema=_FORWARD)
    def forward(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return list(runner.forward(inputs))

    def differentiate(ctx: Any, grads: list[torch.Tensor]) -> Any:
        saved = ctx.saved_tensors
        inputs, outputs = saved[: ctx.given], saved[ctx.given :]
        filled = [
            torch.zeros_like(output) if grad is None else grad
            for grad, output in zip(grads, outputs, strict=True)
        ]
        return backward(filled, list(inputs), list(outputs))

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[0], *output)
        ctx.given = len(inputs[0])

    forward.register_fake(infer)
    backward.register_fake(lambda grads, inputs, outputs: [torch.empty_like(each) for each in inputs])
    forward.register_autograd(differentiate, setup_context=keep)

    return forward


_FORWARD = "(Tensor[] inputs) -> Tensor[]"
_BACKWARD = "(Tensor[] grads, Tensor[] inputs, Tensor[] outputs) -> Tensor[]"


def _inferred(op: CustomOp, inputs: Sequence[torch.Tensor]) -> tuple[list[Any], dict[Any, Any]]:
    """The outputs' descriptors in a graph; sizes that it leaves open are names, given with what they are."""
    symbols: dict[Any, Any] = {}
    for tensor in inputs:
        symbols |= {str(size): size for size in tensor.shape if not isinstance(size, int)}
    names = [[size if isinstance(size, int) else str(size) for size in each.shape] for each in inputs]
    if symbols:
        with suppress(Exception):  # a function of the user's that computes with sizes cannot with names
            found = op.inferred(_described(inputs, names))
            if found and all(
                size in symbols or isinstance(size, int) for each in found for size in each.shape or "?"
            ):
                return list(found), symbols
    return list(op.described(_described(inputs, [[int(size) for size in each.shape] for each in inputs]))), {}


def _described(inputs: Sequence[torch.Tensor], shapes: Sequence[Sequence[Any]]) -> list[TensorDescriptor]:
    return [
        TensorDescriptor(str(each.dtype).removeprefix("torch."), shape)
        for each, shape in zip(inputs, shapes, strict=True)
    ]


def _plain(name: str) -> str:
    return re.sub(r"\W+", "_", name).strip("_") or "operator"


def _no_tensors(op: CustomOp, inputs: Sequence[object]) -> ConfigurationError | None:
    """The error for inputs that are no tensors; None where all of them are."""
    for index, each in enumerate(inputs):
        if each is not None and not isinstance(each, torch.Tensor):
            return ConfigurationError(
                f"input {index} of the operator {op.operator_name} is a {type(each).__name__}, expected "
                "a torch.Tensor"
            )
    return None
