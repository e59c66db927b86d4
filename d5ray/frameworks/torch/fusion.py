"""Nodes that PyTorch has one function for: a product and the sum with its bias are `linear`"""

from typing import Any

import torch
from torch import fx
from torch.nn.functional import linear

from d5ray.networks.network import Network


def fuse(own: fx.Graph, network: Network) -> None:
    """Let `linear` stand for x W' + b where ONNX needs three nodes: Transpose, MatMul and Add.

    W has two axes and b one; nothing else may read what lies between. A Gemm has two axes for x as well, so
    this is what becomes of every linear layer on sequences.
    """
    for add in [each for each in own.nodes if _kind(each) == "Add"]:
        for place in (0, 1):
            product, bias = add.args[place], add.args[1 - place]
            if _fits(product, add, place, network):
                with own.inserting_before(add):
                    call = own.call_function(linear, (product.args[0], _weights(own, product), bias))
                call.meta["node"] = add.meta["node"]
                add.replace_all_uses_with(call)
                turned = product.args[1]
                for done in (add, product, turned):
                    if done.op == "call_function" and not done.users:
                        own.erase_node(done)
                break


def _kind(each: Any) -> str:
    node = each.meta.get("node") if isinstance(each, fx.Node) else None
    return "" if node is None else str(node.type)


def _fits(product: Any, add: fx.Node, place: int, network: Network) -> bool:
    """Whether this is a product with one reader, of types and axes that `linear` has."""
    if _kind(product) != "MatMul" or len(product.users) > 1:
        return False
    names = (*product.meta["node"].inputs, add.meta["node"].inputs[1 - place])
    known = [each for each in map(network.descriptors.get, names) if each is not None]
    if len(known) < len(names) or len({each.dtype for each in known}) > 1 or known[0].dtype.kind in "iub":
        return False
    x, weights, bias = (each.shape for each in known)
    if x is None or weights is None or bias is None:
        return False
    fits = len(x) >= 2 and len(weights) == 2 and len(bias) == 1 and bias[0] == weights[1]
    return fits and isinstance(bias[0], int)


def _weights(own: fx.Graph, product: fx.Node) -> fx.Node:
    """As `linear` has them, (features, inputs): what was transposed, or else the transpose."""
    turned: Any = product.args[1]
    if _kind(turned) == "Transpose" and turned.meta["node"].attributes.get("perm", (1, 0)) == (1, 0):
        given: fx.Node = turned.args[0]
        return given
    return own.call_function(torch.t, (turned,))
