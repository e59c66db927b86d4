"""Draft: what one part of a split network computes, written down node by node, with the exchanges between"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, final

import numpy as np

from d5ray.kits.parallel.collectives import nodes as types
from d5ray.kits.parallel.splitting.layouts import (
    OPEN,
    SHARED,
    SUMMAND,
    WHOLE,
    Array,
    Divided,
    Layout,
    divides,
    part_of,
)
from d5ray.kits.parallel.splitting.rearranging import REARRANGING, before
from d5ray.networks.graph.edits import free
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node

SUFFIXES = {
    types.ALL_REDUCE: "sum",
    types.ALL_REDUCE_GRADIENT: "shared",
    types.ALL_GATHER: "whole",
    types.SCATTER: "part",
}


@final
class Draft:
    """Tensors of the whole network are known by their names, and read in the layout that is wanted.

    held: what a part holds of each parameter and state. Without it the draft finds out: those tensors are
    OPEN, everything that reads one says how it wants it, and `held_by_all` is what all of them want.

    nodes, constants and origins: what the part computes, the constants of its own, and, for every exchange
    by its name, the tensor of the whole network that travels.
    """

    def __init__(
        self, network: Network, parts: int, index: int = 0, held: Mapping[str, Layout] | None = None
    ) -> None:
        self.network, self.parts, self.index = network, parts, index
        self.nodes: list[Node] = []
        self.constants: dict[str, Array] = {}
        self.origins: dict[str, str] = {}
        self.layouts: dict[str, Layout] = dict.fromkeys(network.inputs, WHOLE)
        self._wanted: list[tuple[str, Layout]] = []  # of parameters and state
        self._own: dict[str, str] = {}  # what a tensor is called in the part, where that differs
        self._converted: dict[tuple[str, Layout], str] = {}
        self._producers = network.graph.producers()
        self._moving = self._found_moving()
        self._taken = set(network.graph.tensors()) | {node.name for node in network.nodes}
        trained = (*network.parameters, *network.state_values)
        self.layouts |= {name: OPEN if held is None else held[name] for name in trained}
        self.layouts |= dict.fromkeys(network.constants, OPEN if held is None else WHOLE)
        self._roots = frozenset(trained)
        self._flexible = self._found_flexible()

    def is_flexible(self, name: str) -> bool:
        """True if the tensor is a parameter, a constant, a state, or a rearrangement of one."""
        return name in self._flexible

    def is_moving(self, name: str) -> bool:
        """True if the tensor depends on a parameter, so that it may have a gradient."""
        return name in self._moving

    def held_by_all(self) -> dict[str, Layout]:
        """The layout of every parameter and state on a part: its share where all readers want the same."""
        wanted: dict[str, set[Layout]] = {name: set() for name in self._roots}
        for name, layout in self._wanted:
            wanted[name].add(layout)
        return {name: next(iter(found)) if len(found) == 1 else WHOLE for name, found in wanted.items()}

    # -- reading and writing -----------------------------------------------------------------------------

    def read(self, name: str, wanted: Layout) -> str:
        """The name in the part of a tensor in this layout, exchanged for it where that must be."""
        if not name:
            return ""
        held = self.layouts[name]
        if held is OPEN:
            self._want(name, wanted)
            return name
        if name in self.network.constants:
            return self._part_of_constant(name, wanted) if isinstance(wanted, Divided) else name
        own = self._own.get(name, name)
        if held == wanted or (held is WHOLE and wanted is SHARED and not self.is_moving(name)):
            return own
        if (name, wanted) not in self._converted:
            self._converted[name, wanted] = self._exchanged(name, own, held, wanted)
        return self._converted[name, wanted]

    def write(self, node: Node, layouts: Sequence[Layout]) -> None:
        """Let the part compute this node, what it makes being of these layouts."""
        outputs = []
        for name, layout in zip(node.outputs, layouts, strict=True):
            outputs.append(name)
            if not name:
                continue
            self.layouts[name] = layout
            if layout is not WHOLE and name in self.network.outputs:
                self._own[name] = outputs[-1] = self.named(f"{name}.of_part")
        self._add(Node(node.type, node.inputs, tuple(outputs), node.attributes, node.name, node.domain))
        for name in node.outputs:
            if name in self._own:  # an output of the network, which every part gives, and may as well read
                self._own[name], self.layouts[name] = self.read(name, WHOLE), WHOLE

    def helper(self, kind: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        """A further node on the part's own tensors, called so; gives the name of what it makes."""
        made = self.named(name)
        self._add(Node(kind, tuple(inputs), (made,), MappingProxyType(attributes), made))
        return made

    def summand(self, node: Node, name: str) -> str:
        """The sum over all parts of what this node makes on each, under a name of its own."""
        made = self.named(name)
        self._moving.add(made)
        self.layouts[made] = SUMMAND
        self._add(Node(node.type, node.inputs, (made,), node.attributes, node.name, node.domain))
        return self._exchanged(made, made, SUMMAND, WHOLE, node.outputs[0])

    def constant(self, value: Any, name: str) -> str:
        """A constant of the part's own."""
        made = self.named(name)
        self.constants[made] = np.asarray(value)
        return made

    def named(self, name: str) -> str:
        """The name, or one like it that is free."""
        found = free(name, self._taken)
        self._taken.add(found)
        return found

    # -- undoing -----------------------------------------------------------------------------------------

    def mark(self) -> tuple[int, int, dict[tuple[str, Layout], str]]:
        """The draft's present end, to which `back_to` returns."""
        return len(self.nodes), len(self._wanted), dict(self._converted)

    def back_to(self, mark: tuple[int, int, dict[tuple[str, Layout], str]]) -> None:
        """Forget what was written and wanted since."""
        nodes, wanted, self._converted = mark
        del self.nodes[nodes:], self._wanted[wanted:]

    # -- how ---------------------------------------------------------------------------------------------

    def _add(self, node: Node) -> None:
        self.nodes.append(node)

    def _exchanged(self, name: str, own: str, held: Layout, wanted: Layout, origin: str = "") -> str:
        if held is not WHOLE and wanted is not WHOLE:  # by way of the whole; `fused` finds shorter ways
            own, held = self.read(name, WHOLE), WHOLE
            if wanted is SHARED and not self.is_moving(name):
                return own
        if held is SUMMAND:
            return self._exchange(types.ALL_REDUCE, name, own, None, origin)
        if isinstance(held, Divided):
            return self._exchange(types.ALL_GATHER, name, own, held, origin)
        if isinstance(wanted, Divided):
            return self._exchange(types.SCATTER, name, own, wanted, origin)
        return self._exchange(types.ALL_REDUCE_GRADIENT, name, own, None, origin)

    def _exchange(self, kind: str, name: str, own: str, along: Divided | None, origin: str) -> str:
        whole = kind in (types.ALL_REDUCE, types.ALL_GATHER)
        wanted = name if whole and own != name else self.named(f"{name}.{SUFFIXES[kind]}")
        called = self.named(f"{name}.{kind}")
        attributes = {"index": self.index, "parts": self.parts}
        if along is not None:
            attributes |= {"axis": along.axis, "blocks": along.blocks}
        self.origins[called] = origin or name
        self._add(Node(kind, (own,), (wanted,), MappingProxyType(attributes), called, types.DOMAIN))
        return wanted

    def _part_of_constant(self, name: str, wanted: Divided) -> str:
        if (name, wanted) not in self._converted:
            value = part_of(self.network.constants[name], wanted, self.index, self.parts)
            self._converted[name, wanted] = self.constant(value, f"{name}.part")
        return self._converted[name, wanted]

    def _want(self, name: str, wanted: Layout) -> None:
        """Something reads an open tensor in this layout: what that means for the parameter behind it."""
        while name not in self._roots:
            if name in self.network.constants:
                return
            node = self._producers[name]
            wanted = before(self.network.site(node), wanted, self.parts)
            name = node.inputs[0]
        shape = self.network.descriptors[name].shape or ()
        if isinstance(wanted, Divided) and not divides(shape[wanted.axis], self.parts, wanted.blocks):
            wanted = WHOLE
        self._wanted.append((name, wanted if isinstance(wanted, Divided) else WHOLE))

    def _found_moving(self) -> set[str]:
        """The tensors computed from parameters by way of numbers that have gradients."""
        found, known = set(self.network.parameters), self.network.descriptors
        for node in self.network.nodes:
            if not found.isdisjoint(node.inputs):
                found.update(
                    name for name in node.outputs if name not in known or known[name].dtype.kind not in "iub"
                )
        return found

    def _found_flexible(self) -> frozenset[str]:
        found = {*self._roots, *self.network.constants}
        for node in self.network.nodes:
            rest = all(name in self.network.constants for name in node.inputs[1:] if name)
            if node.type in REARRANGING and not node.domain and node.inputs[0] in found and rest:
                found.update(node.outputs)
        return frozenset(found)
