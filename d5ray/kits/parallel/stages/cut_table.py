"""The table of a cut: a row for each stage"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from d5ray.checks import check_items, check_kind
from d5ray.kits.parallel.stages.piece import Piece
from d5ray.networks.executors.costs import NetworkCosts, counted_costs

if TYPE_CHECKING:
    import pyarrow as pa

WANTED = "a cut network, such as pieces(network, Balanced(2))"


def stage_table(pieces: Sequence[Piece], costs: NetworkCosts | None = None, batch: int = 1) -> "pa.Table":
    """The stages of a cut with what each takes, in a training pass over one micro-batch.

    Columns: stage, first and last (nodes), operators, parameters, parameter_bytes, flops, seconds, share (of
    the seconds of all), kept_bytes (of activations), received_bytes and sent_bytes (activations, forwards;
    as many bytes of gradients of those that are differentiated go back), received_from and sent_to (stages).
    costs: of the whole network, from `operator_costs`; by default they are counted, for `batch` samples.
    """
    import pyarrow as pa  # noqa: PLC0415 - takes a while

    pieces = check_items("pieces", pieces, WANTED)
    for piece in pieces:
        check_kind("pieces", piece, Piece, WANTED)
    check_kind("costs", costs, NetworkCosts | None, "what operator_costs gives, or None")
    found = [counted_costs(piece.network, batch) if costs is None else costs for piece in pieces]
    sizes = {name: size for each in found for name, size in each.tensor_bytes.items()}
    rows = [_row(piece, own, sizes) for piece, own in zip(pieces, found, strict=True)]
    whole = sum(row["seconds"] for row in rows)
    return pa.Table.from_pylist([
        {**row, "share": row["seconds"] / whole if whole else 0.0} for row in rows
    ])  # fmt: skip


def _row(piece: Piece, costs: NetworkCosts, sizes: dict[str, int]) -> dict[str, Any]:
    nodes = [node.name for node in piece.network.nodes]
    values = piece.network.parameters.values()
    return {
        "stage": piece.index,
        "first": nodes[0],
        "last": nodes[-1],
        "operators": len(nodes),
        "parameters": sum(value.size for value in values),
        "parameter_bytes": sum(value.nbytes for value in values),
        "flops": sum(costs.flops.get(name, 0) for name in nodes),
        "seconds": sum(costs.seconds.get(name, 0.0) for name in nodes),
        "share": 0.0,
        "kept_bytes": max(0, sum(costs.kept_bytes.get(name, 0) for name in nodes)),
        "received_bytes": sum(sizes.get(name, 0) for name in piece.incoming),
        "sent_bytes": sum(sizes.get(name, 0) * len(to) for name, to in piece.outgoing.items()),
        "received_from": sorted(set(piece.incoming.values())),
        "sent_to": sorted({stage for to in piece.outgoing.values() for stage in to}),
    }
