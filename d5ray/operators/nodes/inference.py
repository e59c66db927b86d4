"""Types and shapes of the outputs of operators beyond ONNX's, by rules that they bring along."""

from collections.abc import Callable, Sequence

from d5ray.errors import ConfigurationError
from d5ray.names.kits import found
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

# What a node makes: a descriptor for each of its outputs. The context knows the inputs' descriptors, None
# for what is left out, and the constants. Raises `ConfigurationError` where the inputs do not fit.
Rule = Callable[[NodeContext], Sequence[TensorDescriptor]]

_rules: dict[tuple[str, str], Rule] = {}


def register(domain: str, type: str, rule: Rule) -> None:
    """Let networks hold nodes of this type; a later rule takes the place of an earlier one.

    Raises `ConfigurationError` for ONNX's own domain, whose rules are ONNX's.
    """
    if domain in ("", "ai.onnx"):
        raise ConfigurationError(
            f"the operator {type!r} cannot be registered in ONNX's own domain: give it a domain of your own"
        )
    _rules[domain, type] = rule


def unregister(domain: str, type: str) -> None:
    """Forget the rule, if there is one."""
    _rules.pop((domain, type), None)


def registered(domain: str, type: str) -> Rule | None:
    """The rule of this type, that of a kit among them; None where there is none."""
    return _rules.get((domain, type)) or found("shapes of operators", f"{domain}.{type}")


def mean_squared_error(context: NodeContext) -> tuple[TensorDescriptor]:
    """The type of the loss, a number of the scores' type; the labels have the scores' type and shape."""
    scores, labels = context.inputs
    if scores is None or labels is None:
        raise ConfigurationError("it needs scores and labels, both")
    if scores.dtype != labels.dtype:
        raise ConfigurationError("scores and labels must be of one type")
    if scores.shape is not None and labels.shape is not None:
        open_sizes = [
            one != other and isinstance(one, int) and isinstance(other, int)
            for one, other in zip(scores.shape, labels.shape, strict=False)
        ]
        if len(scores.shape) != len(labels.shape) or any(open_sizes):
            raise ConfigurationError("scores and labels must have one shape")
    return (TensorDescriptor(scores.dtype, ()),)


register("d5ray", "MeanSquaredError", mean_squared_error)
