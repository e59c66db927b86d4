"""`d5ray network`: the nodes of an ONNX file with shapes and parameters, as a table or as data"""

import json
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from d5ray.dashboards.numbers import count, size
from d5ray.dashboards.terminal import out
from d5ray.networks.network import Network
from d5ray.operators.node import Node
from d5ray.operators.tensor_descriptor import TensorDescriptor

LONGEST_NAME = 44


def show(network: Network) -> None:
    """A line for every node, in the order of computation; what comes in before, what goes out behind."""
    console = out()
    held = network.parameters.values()
    elements, taken = sum(each.size for each in held), sum(each.nbytes for each in held)
    console.print(
        f"[bold]{network.name}[/bold]  {count(len(network.nodes), 'node')}  {elements:,} parameters in "
        f"{count(len(network.parameters), 'tensor')} ({size(taken)})"
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, side in (("node", "left"), ("type", "left"), ("makes", "left"), ("parameters", "right")):
        table.add_column(name, justify="right" if side == "right" else "left")
    for name, each in network.inputs.items():
        table.add_row(_short(name), Text("input", style="dim"), str(each), "")
    for node in network.nodes:
        makes = next((network.descriptors.get(name) for name in node.outputs if name), None)
        owned = _parameters(network, node)
        table.add_row(_short(node.name), _type(node), str(makes or "?"), f"{owned:,}" if owned else "")
    for name, each in network.outputs.items():
        table.add_row(_short(name), Text("output", style="dim"), str(each), "")
    console.print(table)


def as_data(network: Network) -> dict[str, Any]:
    """The same for programs, with the tensors that every node reads and makes, and its attributes."""
    return {
        "name": network.name,
        "inputs": {name: _described(each) for name, each in network.inputs.items()},
        "outputs": {name: _described(each) for name, each in network.outputs.items()},
        "parameters": {name: list(each.shape) for name, each in network.parameters.items()},
        "state": dict(network.state),
        "nodes": [
            {
                "name": node.name,
                "type": node.type,
                "domain": node.domain,
                "reads": list(node.inputs),
                "makes": {name: _described(network.descriptors.get(name)) for name in node.outputs if name},
                "attributes": {name: _plain(value) for name, value in node.attributes.items()},
                "parameters": _parameters(network, node),
            }
            for node in network.nodes
        ],
    }


def _parameters(network: Network, node: Node) -> int:
    """How many numbers the parameters have that a node reads."""
    return sum(network.parameters[name].size for name in {*node.inputs} if name in network.parameters)


def _described(descriptor: TensorDescriptor | None) -> dict[str, Any] | None:
    if descriptor is None:
        return None
    return {
        "type": str(descriptor.dtype),
        "shape": None if descriptor.shape is None else list(descriptor.shape),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist() if value.size <= 64 else f"{value.dtype} {value.shape}"
    try:
        json.dumps(value)
    except TypeError:
        return str(value)
    return value


def _type(node: Node) -> str:
    return f"{node.domain}.{node.type}" if node.domain else node.type


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else "…" + name[1 - LONGEST_NAME :]
