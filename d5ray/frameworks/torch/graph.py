"""The code of a Network: a torch.fx graph whose functions are built once, with every value let go in time"""

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import fx, nn
from torch.nn.functional import linear

from d5ray.frameworks.torch.watching import Watch
from d5ray.networks.events.observer import Observer
from d5ray.networks.executors.fusion import LINEAR, fused
from d5ray.networks.executors.plan import Plan
from d5ray.networks.network import Network
from d5ray.operators.collectives import Collectives
from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import Kernel
from d5ray.ops.lookup import implementation

Code = Callable[..., tuple[torch.Tensor, ...]]  # of the module and the inputs


def graph(
    network: Network,
    made: Plan,
    places: Mapping[str, str],
    *,
    evaluating: bool,
    observer: Observer | None = None,
    around: Callable[[Node, Kernel], Kernel] | None = None,
    collectives: Collectives | None = None,
) -> fx.Graph:
    """The graph from a plan's inputs to a tuple of what it wants; new state overwrites the old at the end.

    places: the attributes of the module where parameters, constants and state are, by their names. With an
    observer every operator stands between what tells it; without one there is nothing else in the graph, and
    linear layers are one call; see `fused`. around: gives what is called in the place of a node's function.
    """
    made = fused(network, made) if observer is None else made
    own = fx.Graph()
    known: dict[str, fx.Node] = {}
    for number, name in enumerate(made.inputs):
        known[name] = own.placeholder(f"input_{number}")
        known[name].meta["tensor"] = name

    def value(name: str) -> fx.Node | None:
        if name and name not in known:
            known[name] = own.get_attr(places[name])
        return known[name] if name else None

    for index, node in made.nodes:
        function = _function(network, node, evaluating, collectives)
        if around is not None and node.domain != LINEAR:
            function = _named(around(node, function), node)
        inputs = tuple(value(name) for name in node.inputs)
        watch = None if observer is None else Watch(observer, node, index)
        if watch is not None:
            inputs = _apart(own, own.call_function(watch.enter, inputs), inputs)
        call = own.create_node("call_function", function, inputs, {}, name=node.name or node.type)
        call.meta["node"] = node
        if watch is not None:
            call = own.call_function(watch.leave, (call,))
        if len(node.outputs) == 1:
            known[node.outputs[0]] = call
            continue
        for place, name in enumerate(node.outputs):
            if name:
                known[name] = own.call_function(operator.getitem, (call, place))
    for old, new in made.state.items():
        own.call_function(replace, (value(old), known[new]))
    own.output(tuple(value(name) for name in made.wanted))
    return own


def linear_of_columns(x: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """x W + b, W (inputs, features)."""
    return linear(x, weights.t(), bias)


LINEAR_LAYERS: Final[Mapping[int, Kernel]] = {1: linear, 0: linear_of_columns}  # by `transB`


def code_of(own: fx.Graph, module: nn.Module) -> Code:
    """The function that PyTorch writes of a graph; it is called with a module that has the attributes."""
    made = fx.GraphModule(module, own)
    function: Code = type(made).forward
    return function


def replace(old: torch.Tensor, new: torch.Tensor) -> None:
    """Let a state have its next value."""
    old.copy_(new.detach())


def _function(network: Network, node: Node, evaluating: bool, collectives: Collectives | None) -> Kernel:
    if node.domain == LINEAR:
        return LINEAR_LAYERS[node.attributes["transB"]]
    at = network.site(node, evaluating=evaluating, collectives=collectives)
    return _named(implementation("torch", at), node)


def _apart(own: fx.Graph, call: fx.Node, inputs: tuple[fx.Node | None, ...]) -> tuple[fx.Node | None, ...]:
    return tuple(
        None if given is None else own.call_function(operator.getitem, (call, place))
        for place, given in enumerate(inputs)
    )


def _named(function: Kernel, node: Node) -> Kernel:
    """The function, under a name that code can be written with."""
    name = getattr(function, "__name__", "")
    if name.isidentifier() and getattr(function, "__module__", None):
        return function

    def call(*inputs: Any) -> Any:
        return function(*inputs)

    call.__name__ = call.__qualname__ = (
        "".join(each for each in node.type if each.isalnum()).lower() or "call"
    )
    return call
