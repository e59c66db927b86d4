"""OperatorMemory: what each operator of a network allocates and keeps, and where the peak is"""

from dataclasses import dataclass
from typing import final

from d5ray.errors import ConfigurationError
from d5ray.networks.events.event import GraphEvent, NetworkMoment, OperatorMoment


@final
@dataclass(frozen=True)
class OperatorMemoryUse:
    """One call of an operator in the last pass.

    kept_bytes: allocated by it and not freed within it; negative where it has freed more. held_bytes: what
    the pass holds after it, over what was allocated before the pass.
    """

    index: int
    node: str
    type: str
    direction: str
    kept_bytes: int
    held_bytes: int


@final
class OperatorMemory(GraphEvent):
    """`rows` has the operators of the last pass in the order of their calls.

    What an operator takes and frees again within its call is not seen: on a GPU ask the framework.
    """

    def __init__(self) -> None:
        self.rows: list[OperatorMemoryUse] = []
        self._before_pass = self._before = 0

    def before_network(self, moment: NetworkMoment) -> None:
        self.rows = []
        self._before_pass = _counted(moment.memory_bytes)

    def before_operator(self, moment: OperatorMoment) -> None:
        self._before = _counted(moment.memory_bytes)

    def after_operator(self, moment: OperatorMoment) -> None:
        now = _counted(moment.memory_bytes)
        node = moment.node
        self.rows.append(
            OperatorMemoryUse(
                moment.index,
                node.name or f"{node.type}_{moment.index}",
                node.type,
                moment.direction,
                now - self._before,
                now - self._before_pass,
            )
        )

    @property
    def peak(self) -> OperatorMemoryUse | None:
        """The operator at which the last pass held most memory; None before the first one."""
        return max(self.rows, key=lambda row: row.held_bytes, default=None)


def _counted(found: int | None) -> int:
    if found is None:
        raise ConfigurationError(
            "nothing counts the memory of this process: OperatorMemory needs glibc 2.33 or newer, or a GPU"
        )
    return found
