"""Place: one node of the whole network, as the rules that divide it see it"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, final

from d5ray.kits.parallel.splitting.draft import Draft
from d5ray.kits.parallel.splitting.layouts import SHARED, SUMMAND, WHOLE, Divided, Layout
from d5ray.networks.axes.axis_map import CannotDivide, shape_of
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import Dimension


@final
class SplitNode:
    """A rule looks at the layouts of the inputs, reads them as it wants them, and writes what a part does.

    given: layouts that some inputs are read in, whatever they have.
    """

    def __init__(self, draft: Draft, node: Node, given: Mapping[int, Layout] | None = None) -> None:
        self.draft, self.node = draft, node
        self.context = draft.network.site(node)
        self.parts = draft.parts
        self.layouts = [draft.layouts[name] if name else WHOLE for name in node.inputs]
        for slot, layout in (given or {}).items():
            self.layouts[slot] = layout

    @property
    def slots(self) -> list[int]:
        """The numbers of the inputs that are there."""
        return [slot for slot, name in enumerate(self.node.inputs) if name]

    @property
    def divided(self) -> dict[int, Divided]:
        """The inputs of which a part has its share."""
        return {slot: held for slot, held in enumerate(self.layouts) if isinstance(held, Divided)}

    def shape(self, slot: int) -> tuple[Dimension, ...]:
        """The shape of an input of the undivided node."""
        return shape_of(self.context, slot)

    def rank(self, slot: int) -> int:
        """The number of axes of an input."""
        return len(self.shape(slot))

    def axis(self, name: str, default: int, rank: int) -> int:
        """The axis that an attribute names, counted from the front."""
        return int(self.context.attribute(name, default)) % rank

    def is_flexible(self, slot: int) -> bool:
        """True if the input may be read in any layout at no cost; see `Draft`."""
        return self.draft.is_flexible(self.node.inputs[slot])

    def first(self) -> Divided:
        """The layout of input 0, the only one that is divided. Raises `CannotDivide`."""
        held = self.layouts[0]
        if not isinstance(held, Divided):
            raise CannotDivide(f"its input 0, {self.node.inputs[0]!r}, is not divided, and another is")
        for slot in self.divided:
            if slot and not self.is_flexible(slot):
                raise CannotDivide(f"its input {slot}, {self.node.inputs[slot]!r}, is divided too")
        return held

    def read(self, slot: int, layout: Layout) -> str:
        """The name of an input in this layout; "" for one that is not there."""
        there = slot < len(self.node.inputs)
        return self.draft.read(self.node.inputs[slot], layout) if there else ""

    def shared(self, *slots: int) -> list[str]:
        """Inputs that all parts have, of a computation that differs between them; all but 0 by default."""
        return [self.read(slot, SHARED) for slot in slots or range(1, len(self.node.inputs))]

    def write(
        self,
        inputs: Sequence[str],
        *layouts: Layout,
        changed: Mapping[str, Any] | None = None,
        type: str = "",
        domain: str = "",
    ) -> None:
        """Let the part compute the node on these inputs. One layout stands for all outputs.

        changed: attributes of other values.
        """
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        node = self.with_inputs(inputs, changed or {}, type, domain)
        self.draft.write(node, layouts if len(layouts) > 1 else layouts * len(node.outputs))

    def with_inputs(
        self, inputs: Sequence[str], changed: Mapping[str, Any], type: str = "", domain: str = ""
    ) -> Node:
        """The node with other inputs and these attributes changed; of another type where one is given."""
        node = self.node
        attributes = MappingProxyType({**node.attributes, **changed})
        return Node(
            type or node.type, tuple(inputs), node.outputs, attributes, node.name, domain or node.domain
        )

    def whole(self) -> None:
        """Every part computes the whole."""
        self.write([self.read(slot, WHOLE) for slot in range(len(self.node.inputs))], WHOLE)

    @property
    def sums(self) -> bool:
        """True if some input is a summand."""
        return SUMMAND in self.layouts
