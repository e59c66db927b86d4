"""Linear layers on sequences, which ONNX has no node for, as one: frameworks have a function for them"""

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from d5ray.networks.executors.plan import Plan, last_uses
from d5ray.operators.nodes.node import Node

if TYPE_CHECKING:
    from d5ray.networks.network import Network

LINEAR: Final = "d5ray.linear"  # the domain of nodes that stand for several, and are in no network


def fused(network: "Network", made: Plan) -> Plan:
    """The plan with one node x W' + b in the place of Transpose, MatMul and Add.

    Its inputs are x, W and b, its attribute `transB` says that W is (features, inputs). W has two axes and b
    one; nothing else reads the product. A Gemm has two axes for x as well, so this is what becomes of every
    linear layer on sequences.
    """
    read = Counter(name for _, node in made.nodes for name in node.inputs if name)
    read.update((*made.wanted, *made.state.values()))
    makers = {name: node for _, node in made.nodes for name in node.outputs if name}
    gone: set[str] = set()
    nodes = []
    for place, node in made.nodes:
        found = _linear(network, node, makers, read)
        if found is None:
            nodes.append((place, node))
            continue
        product, layer = found
        nodes.append((place, layer))
        gone.add(product.outputs[0])
        turned = product.inputs[1]
        read[turned] -= 1
        if turned != layer.inputs[1] and not read[turned]:
            gone.add(turned)
    kept = tuple((place, node) for place, node in nodes if gone.isdisjoint(node.outputs))
    if not gone:
        return made
    return replace(made, nodes=kept, last_uses=last_uses(kept, {*made.wanted, *made.state.values()}))


def _linear(
    network: "Network", add: Node, makers: dict[str, Node], read: Counter[str]
) -> tuple[Node, Node] | None:
    """The product that an Add reads, and the node that stands for both, if that is what they are."""
    if not _is(add, "Add"):
        return None
    for name, bias in (add.inputs, reversed(add.inputs)):
        product = makers.get(name)
        if product is None or not _is(product, "MatMul") or read[name] > 1:
            continue
        x, weights = product.inputs
        if not _fits(network, x, weights, bias):
            continue
        turned = makers.get(weights)
        across = (
            turned is not None
            and _is(turned, "Transpose")
            and turned.attributes.get("perm", (1, 0)) == (1, 0)
        )
        if across and turned is not None:
            weights = turned.inputs[0]
        inputs, attributes = (x, weights, bias), {"transB": int(across)}
        return product, Node("Linear", inputs, add.outputs, attributes, add.name, LINEAR)
    return None


def _is(node: Node | None, type: str) -> bool:
    return node is not None and node.type == type and not node.domain


def _fits(network: "Network", *names: str) -> bool:
    """True if x, W and b are of one floating-point type, and of axes that linear layers have."""
    known = [each for each in map(network.descriptors.get, names) if each is not None]
    if len(known) < len(names) or len({each.dtype for each in known}) > 1 or known[0].dtype.kind in "iub":
        return False
    x, weights, bias = (each.shape for each in known)
    if x is None or weights is None or bias is None:
        return False
    fits = len(x) >= 2 and len(weights) == 2 and len(bias) == 1 and bias[0] == weights[1]
    return fits and isinstance(bias[0], int)
