"""CollectValues: every tensor that a pass makes, and every gradient, for comparing networks"""

from typing import Any, final

import numpy as np

from d5ray.networks.events.event import BACKWARD, GraphEvent, NetworkMoment, OperatorMoment


@final
class CollectValues(GraphEvent):
    """An event that collects tensors: `values` has them by name in the order in which they were made.

    `gradients` has, by tensor, the gradient of the loss; where several operators read a tensor it is the sum.
    """

    def __init__(self) -> None:
        self.values: dict[str, np.ndarray[Any, Any]] = {}
        self.gradients: dict[str, np.ndarray[Any, Any]] = {}

    def before_network(self, moment: NetworkMoment) -> None:
        self.values = {name: np.array(value) for name, value in moment.values.items()}
        self.gradients = {}

    def after_operator(self, moment: OperatorMoment) -> None:
        if moment.direction != BACKWARD:
            self.values |= moment.named_outputs()
            return
        node = moment.node
        for place, name in enumerate(node.inputs):
            found = moment.output(place)
            if name and found is not None:
                before = self.gradients.get(name)
                self.gradients[name] = found if before is None else before + found
