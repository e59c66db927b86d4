"""split: the network that one of several executors computes, with operators divided between them"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol, final, overload

from d5ray.checks import check_count, check_kind
from d5ray.errors import ConfigurationError, nearest
from d5ray.kits.parallel.splitting import planned
from d5ray.kits.parallel.splitting.divisions import Division
from d5ray.kits.parallel.splitting.draft import Draft
from d5ray.kits.parallel.splitting.fusing import fused
from d5ray.kits.parallel.splitting.layouts import (
    OPEN,
    WHOLE,
    Array,
    Divided,
    Layout,
    part_of,
    whole_of,
)
from d5ray.kits.parallel.splitting.rules import RULES
from d5ray.kits.parallel.splitting.split_node import SplitNode
from d5ray.networks.axes.axis_map import CannotDivide
from d5ray.networks.executors.labelled_network import LabelledNetwork
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node


class ReadyMade(Protocol):
    """A plan-maker for a network; see `d5ray.kits.parallel.splitting.plans`."""

    def plan(self, network: Network, parts: int) -> Mapping[str, Division]:
        """The divisions of the network's operators over `parts` executors, by name of the node."""


Plan = Mapping[str, Division] | ReadyMade


@overload
def split(network: Network, plan: Plan, index: int, parts: int) -> Network: ...
@overload
def split(network: LabelledNetwork, plan: Plan, index: int, parts: int) -> LabelledNetwork: ...
def split(
    network: Network | LabelledNetwork, plan: Plan, index: int, parts: int
) -> Network | LabelledNetwork:
    """The network of part `index` of `parts`; see `Splitting`.

    Its inputs, outputs, parameters and state have the names of the whole network's; every part is given the
    whole inputs, and gives the whole outputs. An executor of it needs `collectives=Collectives(communicator)`
    of the parts' group, and all parts run the same passes at the same time.
    """
    if isinstance(network, LabelledNetwork):
        return replace(network, network=Splitting(network.network, plan, parts).part(index))
    return Splitting(network, plan, parts).part(index)


@final
class Splitting:
    """A network in equal parts, as a plan says: by node's name how each of some operators is divided.

    This is tensor parallelism. A tensor stays divided from one operator to the next if possible: a layer by
    columns, an activation, and a layer by rows need one allreduce forward and one backward (Megatron-LM,
    arXiv:1909.08053). Collectives are inserted where an operator needs values of other parts. A parameter is
    divided if everything that reads it needs the same share; all others, and their gradients, are equal on
    all parts. Outputs, loss and gradients are those of the whole network up to rounding.

    parameters and state: what a part holds of each, by name: `Divided` along an axis, or WHOLE.

    Raises `ConfigurationError` for an unknown node, an operator without a rule for its division, and sizes
    that the number of parts does not divide.
    """

    def __init__(self, network: Network, plan: Plan, parts: int) -> None:
        check_kind("network", network, Network, "a Network, such as Network.from_onnx(path)")
        check_count("parts", parts)
        self.network, self.parts = network, parts
        self.plan = _resolved(network, plan, parts)
        found = self._draft(None)
        held = found.held_by_all()
        self._held = held
        self.parameters: Mapping[str, Layout] = MappingProxyType(
            {each: held[each] for each in network.parameters}
        )
        self.state: Mapping[str, Layout] = MappingProxyType(
            {each: held[each] for each in network.state_values}
        )

    def __repr__(self) -> str:
        divided = sum(isinstance(each, Divided) for each in self.parameters.values())
        return (
            f"Splitting({self.network.name!r} into {self.parts} parts: {len(self.plan)} operators and "
            f"{divided} of {len(self.parameters)} parameters are divided)"
        )

    def part(self, index: int) -> Network:
        """The network that one part computes."""
        self._check_index(index)
        if self.parts == 1:
            return self.network.copy()
        draft = self.draft(index)
        whole, part = self.network, Network(self.network.name)
        read = {name for node in draft.nodes for name in node.inputs} | set(whole.outputs)
        with part.changes():
            for name, descriptor in whole.inputs.items():
                part.add_input(name, descriptor)
            for name, value in self.divided(whole.parameters, index).items():
                part.add_parameter(name, value)
            for name, value in self.divided(whole.state_values, index).items():
                part.add_state(name, value)
            for name, value in (*whole.constants.items(), *draft.constants.items()):
                if name in read:
                    part.add_constant(name, value)
            for node in draft.nodes:
                part.add_node(node)
            for name in whole.outputs:
                part.add_output(name)
        if part.state != whole.state:
            raise ConfigurationError(
                "the running statistics of a BatchNormalization are read by several nodes, and cannot be "
                "divided: give each its own"
            )
        return part

    def draft(self, index: int = 0) -> Draft:
        """The nodes that one part computes, before they are a network."""
        draft = self._draft(self._held, index)
        draft.nodes = fused(draft.nodes, self.network.outputs)
        return draft

    def divided(self, values: Mapping[str, Array], index: int) -> dict[str, Array]:
        """A part's values of these parameters, gradients or state of the whole network, by name."""
        self._check_index(index)
        return {name: part_of(value, self._of(name), index, self.parts) for name, value in values.items()}

    def joined(self, values: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """The whole parameters, gradients or state, of those of every part by its index; copies."""
        if len(values) != self.parts:
            raise ConfigurationError(
                f"there are the values of {len(values)} parts, and the network is in {self.parts}: give "
                "those of every part, in their order"
            )
        if len({frozenset(each) for each in values}) > 1:
            raise ConfigurationError("the parts have values of different names: give the same of every part")
        return {name: whole_of([each[name] for each in values], self._of(name)) for name in values[0]}

    def _of(self, name: str) -> Layout:
        if name not in self._held:
            raise ConfigurationError(
                f"{name!r} is no parameter or state of the network: {nearest(name, self._held)}"
            )
        return self._held[name]

    def _check_index(self, index: object) -> None:
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < self.parts:
            raise ConfigurationError(
                f"there is no part {index!r} of {self.parts}: give an integer from 0 to {self.parts - 1}"
            )

    def _draft(self, held: Mapping[str, Layout] | None, index: int = 0) -> Draft:
        draft = Draft(self.network, self.parts, index, held)
        for node in self.network.nodes:
            if node.name in self.plan:
                planned.divide(draft, node, self.plan[node.name])
            else:
                _go_through(draft, node)
        for name in self.network.outputs:
            draft.read(name, WHOLE)
        return draft


def _go_through(draft: Draft, node: Node) -> None:
    """A node that the plan does not name: on parts where it can be, else on the whole."""
    place = SplitNode(draft, node)
    if draft.layouts.get(node.inputs[0] if node.inputs else "") is OPEN and draft.is_flexible(
        node.outputs[0]
    ):
        draft.layouts[node.outputs[0]] = OPEN
        return
    rule = RULES.get(node.type) if node.domain in ("", "ai.onnx") else None
    if rule is not None and (place.divided or place.sums):
        mark = draft.mark()
        try:
            rule(place)
            return
        except CannotDivide:
            draft.back_to(mark)
    place.whole()


def _resolved(network: Network, plan: Plan, parts: int) -> dict[str, Division]:
    """The plan by the names of the nodes that are meant."""
    if not isinstance(plan, Mapping):
        if not hasattr(plan, "plan"):
            raise ConfigurationError(
                f"the plan is {plan!r}: give a division by node's name, such as {{'fc1': ByColumns()}}, or a "
                "ready-made plan such as FullyConnectedSplit()"
            )
        plan = plan.plan(network, parts)
    found: dict[str, Division] = {}
    for name, division in plan.items():
        planned.check_division(name, division)
        node = planned.meant(network, name, division)
        if node.name in found:
            raise ConfigurationError(f"the plan divides the node {node} twice: name it once")
        found[node.name] = division
    return found
