"""Traffic of a split network in a pass: every tensor that travels, its bytes, and the formula for them"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from d5ray.checks import check_count, check_kind
from d5ray.errors import ConfigurationError
from d5ray.kits.parallel.collectives import nodes as types
from d5ray.kits.parallel.splitting.draft import Draft
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

if TYPE_CHECKING:
    import pyarrow as pa

    from d5ray.kits.parallel.splitting.splitting import Splitting

FORWARD, BACKWARD = "forward", "backward"
SUM, GATHER, PART_OF_SUM = "allreduce", "all_gather", "reduce_scatter"  # as communicators call them
# What each kind of node calls forwards and backwards; None where a part does it by itself.
CALLS: Mapping[str, tuple[str | None, str | None]] = {
    types.ALL_REDUCE: (SUM, None),
    types.ALL_REDUCE_GRADIENT: (None, SUM),
    types.ALL_GATHER: (GATHER, None),
    types.SCATTER: (None, GATHER),
    types.REDUCE_SCATTER: (PART_OF_SUM, GATHER),
}
# Of the whole tensor, what a part sends if it sends no more than it must: a sum is reduced and then gathered.
FACTORS = {SUM: 2, GATHER: 1, PART_OF_SUM: 1}


@final
@dataclass(frozen=True)
class Exchange:
    """One call of a collective in a training pass.

    node: of the part's network. tensor: of the whole network, which travels, or whose gradient does.
    """

    node: str
    tensor: str
    direction: str
    collective: str
    descriptor: TensorDescriptor | None
    parts: int

    @property
    def formula(self) -> str:
        """The bytes that one of p parts sends: (p − 1) / p of the tensor, for an allreduce twice that."""
        known = self.descriptor
        if known is None or known.shape is None:
            return "?"
        twice = "2 " if FACTORS[self.collective] == 2 else ""
        return f"{twice}(p − 1) / p · {' · '.join(map(str, (*known.shape, known.dtype.itemsize)))}"

    def payload_bytes(self, sizes: Mapping[str, int]) -> int:
        """The bytes of the whole tensor. Raises `ConfigurationError` if a size is open that is not given."""
        known = self.descriptor
        if known is None or known.shape is None:
            raise ConfigurationError(f"the shape of the tensor {self.tensor!r}, which travels, is not known")
        count = 1
        for size in known.shape:
            if not isinstance(size, int):
                if size not in sizes:
                    raise ConfigurationError(
                        f"the tensor {self.tensor!r}, is {known}: give its open sizes, such as "
                        f"{{{size or 'batch'!r}: 32}}"
                    )
                size = sizes[str(size)]
            count *= size
        return count * known.dtype.itemsize

    def sent_bytes(self, sizes: Mapping[str, int]) -> float:
        """The bytes that one part sends, by the formula."""
        share = (self.parts - 1) / self.parts
        return FACTORS[self.collective] * share * self.payload_bytes(sizes)


def exchanges(splitting: "Splitting") -> tuple[Exchange, ...]:
    """The calls of one training pass of every part: forwards in their order, then those of the way back."""
    if splitting.parts == 1:
        return ()
    draft = splitting.draft()
    nodes = [node for node in draft.nodes if node.name in draft.origins]
    forward = list(_calls(draft, nodes, FORWARD))
    return (*forward, *_calls(draft, nodes[::-1], BACKWARD))


def _calls(draft: Draft, nodes: list[Node], direction: str) -> Iterator[Exchange]:
    for node in nodes:
        tensor = draft.origins[node.name]
        forth, back = CALLS[node.type]
        if node.attributes.get("sums_gradients"):
            back = PART_OF_SUM
        called = forth if direction == FORWARD else back if draft.is_moving(tensor) else None
        if called is not None:
            known = draft.network.descriptors.get(tensor)
            yield Exchange(node.name, tensor, direction, called, known, draft.parts)


def _check(splitting: object) -> None:
    from d5ray.kits.parallel.splitting.splitting import Splitting  # noqa: PLC0415 - which needs this file

    check_kind("splitting", splitting, Splitting, "a Splitting of a network, such as that of a mesh")


def exchange_table(splitting: "Splitting", sizes: Mapping[str, int]) -> "pa.Table":
    """Columns node, tensor, direction, collective, shape, payload_bytes (whole), sent_bytes and formula.

    sizes: of open axes, such as {"batch": 32}.
    """
    import pyarrow as pa  # noqa: PLC0415 - takes a while

    _check(splitting)
    check_kind("sizes", sizes, Mapping, "a dictionary of the sizes of open axes, such as {'batch': 32}")
    for name, size in sizes.items():
        check_count(f"the size of {name!r}", size, low=0)
    names = ("node", "tensor", "direction", "collective", "shape", "payload_bytes", "sent_bytes", "formula")
    kinds = (*(pa.string(),) * 5, pa.int64(), pa.float64(), pa.string())
    rows = [
        (
            each.node,
            each.tensor,
            each.direction,
            each.collective,
            str(each.descriptor),
            each.payload_bytes(sizes),
            each.sent_bytes(sizes),
            each.formula,
        )
        for each in exchanges(splitting)
    ]
    columns = zip(*rows, strict=True) if rows else ((),) * len(names)
    return pa.table(
        [pa.array(list(column), kind) for column, kind in zip(columns, kinds, strict=True)], names=list(names)
    )


def parameter_table(splitting: "Splitting") -> "pa.Table":
    """Columns parameter, whole (its shape), layout and bytes_of_part: what a part holds of each parameter."""
    import pyarrow as pa  # noqa: PLC0415 - takes a while

    _check(splitting)
    values = splitting.network.parameters
    own = splitting.divided(values, 0)
    return pa.table(
        {
            "parameter": list(values),
            "whole": [str(value.shape) for value in values.values()],
            "layout": [str(splitting.parameters[name]) for name in values],
            "bytes_of_part": [own[name].nbytes for name in values],
        }
    )
