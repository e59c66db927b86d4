"""`d5ray network --stages`: what a cut comes to, as a table"""

from typing import Any

from d5ray.dashboards.quantities import number, size
from d5ray.display.console import ConsoleTable, out
from d5ray.errors import ConfigurationError
from d5ray.names.lazy import NoSuchName
from d5ray.names.namespaces import public
from d5ray.networks.network import Network

COLUMNS = ("stage", "from", "to", "operators", "parameters", "MFLOP", "of all", "keeps", "receives", "sends")
LEFT = ("from", "to", "receives", "sends")


def rows_of(network: Network, stages: int | None, begins: list[str] | None) -> list[dict[str, Any]]:
    """The rows of a balanced cut, or of one by hand.

    Raises `ConfigurationError` for both at once, and without the kit that cuts networks.
    """
    if stages is not None and begins:
        raise ConfigurationError("--stages balances a cut, and --cut is one by hand: give one of them")
    try:
        cut = public("Cut")(begins or ()) if stages is None else public("Balanced")(stages)
        rows: list[dict[str, Any]] = public("stage_table")(public("pieces")(network, cut)).to_pylist()
    except NoSuchName as error:
        raise ConfigurationError(str(error)) from None
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """A line for every row of `stage_table`."""
    table = ConsoleTable()
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in LEFT else "right")
    for row in rows:
        table.add_row(
            str(row["stage"]),
            row["first"],
            row["last"],
            str(row["operators"]),
            f"{row['parameters']:,}",
            number(row["flops"] * 1e-6),
            f"{row['share']:.0%}",
            size(row["kept_bytes"]),
            _moved(row["received_bytes"], row["received_from"], "from"),
            _moved(row["sent_bytes"], row["sent_to"], "to"),
        )
    out().print(table)


def _moved(amount: int, stages: list[int], way: str) -> str:
    return f"{size(amount)} {way} {', '.join(map(str, stages))}" if stages else ""
