"""The activations that a recurrent node names, for each of its directions"""

from collections.abc import Mapping
from typing import Final

from d5ray.errors import ConfigurationError, nearest
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.recurrence.formulas import recurrence_of, ways_of

# ONNX's defaults for alpha and beta, of the activations that have them.
ACTIVATIONS: Final[Mapping[str, tuple[float, ...]]] = {
    "Affine": (1.0, 0.0), "Elu": (1.0,), "HardSigmoid": (0.2, 0.5), "LeakyRelu": (0.01,), "Relu": (),
    "ScaledTanh": (1.0, 1.0), "Sigmoid": (), "Softplus": (), "Softsign": (), "Tanh": (),
    "ThresholdedRelu": (1.0,),
}  # fmt: skip


def activations_of(context: NodeContext) -> list[tuple[tuple[str, tuple[float, ...]], ...]]:
    """The activations of every direction: names, and alpha and beta where the function takes them.

    These are given out in turn. Raises `ConfigurationError` for names or numbers that are not ONNX's.
    """
    usual, directions = recurrence_of(context).activations, len(ways_of(context))
    known = {name.lower(): name for name in ACTIVATIONS}
    given = tuple(context.attribute("activations") or usual * directions)
    if len(given) != len(usual) * directions:
        raise ConfigurationError(
            f"the node {context.node} has the activations {given}: for {directions} directions it needs "
            f"{len(usual) * directions}"
        )
    pools = [iter(context.attribute(name) or ()) for name in ("activation_alpha", "activation_beta")]
    found = []
    for text in given:
        if (name := known.get(text.lower())) is None:
            raise ConfigurationError(
                f"the node {context.node} has the activation {text!r}; {nearest(text, ACTIVATIONS)}"
            )
        found.append((name, tuple(map(next, pools, ACTIVATIONS[name]))))
    return [tuple(found[first : first + len(usual)]) for first in range(0, len(found), len(usual))]
