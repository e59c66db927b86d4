"""`d5ray network`: the nodes of an ONNX file with shapes and parameters, as a table or as data"""

import json
import math
from typing import Any

import numpy as np

from d5ray.dashboards.quantities import count, number, size
from d5ray.display.console import ConsoleTable, out, styled
from d5ray.networks.difference import compare_values, structural_difference
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

LONGEST_NAME = 44
MOST_ROWS = 20  # of tensors that differ


def show(network: Network) -> None:
    """A line for every node, in the order of computation; inputs first, outputs last."""
    console = out()
    held = network.parameters.values()
    elements, taken = sum(each.size for each in held), sum(each.nbytes for each in held)
    console.print(
        styled(network.name, "bold"),
        f" {count(len(network.nodes), 'node')}  {elements:,} parameters "
        f"in {count(len(network.parameters), 'tensor')} ({size(taken)})",
    )
    table = ConsoleTable("node", "type", "makes", numbers=("parameters",))
    for name, each in network.inputs.items():
        table.add_row(_short(name), styled("input", style="dim"), str(each), "")
    for node in network.nodes:
        makes = next((network.descriptors.get(name) for name in node.outputs if name), None)
        owned = _parameters(network, node)
        table.add_row(_short(node.name), _type(node), str(makes or "?"), f"{owned:,}" if owned else "")
    for name, each in network.outputs.items():
        table.add_row(_short(name), styled("output", style="dim"), str(each), "")
    console.print(table)


def as_data(network: Network) -> dict[str, Any]:
    """A network as data for programs, with the tensors that nodes read and make, and their attributes."""
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


def compared(first: Network, second: Network) -> dict[str, Any]:
    """The differences of two networks: the first node, and every parameter that differs, largest first."""
    structure = structural_difference(first, second)
    held, others = _held(first), _held(second)
    values = compare_values(first, held, others, tolerance=0.0).tensors if held.keys() & others.keys() else ()
    apart = [each for each in values if not each.passed]
    apart.sort(key=lambda each: -(each.norms.relative_l2 if each.norms else math.inf))
    return {
        "differ": structure is not None or bool(apart),
        "structure": None if structure is None else structure.why,
        "node": structure.node.name if structure and structure.node else None,
        "other_node": structure.other.name if structure and structure.other else None,
        "values": [
            {
                "tensor": each.tensor,
                "l1": each.norms.l1 if each.norms else None,
                "l2": each.norms.l2 if each.norms else None,
                "largest": each.norms.largest if each.norms else None,
                "relative_l2": each.norms.relative_l2 if each.norms else None,
                "why": each.why,
            }
            for each in apart
        ],
    }


def _held(network: Network) -> dict[str, Any]:
    return {**network.parameters, **network.state_values, **network.constants}


def show_compared(report: dict[str, Any]) -> None:
    """Print how two networks differ, for people."""
    console = out()
    console.print(report["structure"] or "the structure is the same")
    rows = report["values"]
    if not rows:
        console.print("all values that both hold under one name are equal")
        return
    table = ConsoleTable("tensor", numbers=("L1", "L2", "largest", "relative L2"))
    table.add_column("")
    for row in rows[:MOST_ROWS]:
        norms = (row["l1"], row["l2"], row["largest"], row["relative_l2"])
        table.add_row(
            _short(row["tensor"]),
            *("–" if each is None else number(each) for each in norms),
            row["why"],
        )
    console.print(table)
    if len(rows) > MOST_ROWS:
        console.print(f"and {len(rows) - MOST_ROWS} more; --json gives all", style="dim")


def _parameters(network: Network, node: Node) -> int:
    """The number of values in the parameters that a node reads."""
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
