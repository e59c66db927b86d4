"""`d5ray network --stages`: what a cut comes to, as a table"""

from typing import Any

from d5ray.dashboards.numbers import number, size
from d5ray.display.console import ConsoleTable, out
from d5ray.errors import ConfigurationError
from d5ray.networks.network import Network
from d5ray.networks.stages.balanced import Balanced
from d5ray.networks.stages.cut import Cut
from d5ray.networks.stages.cut_table import stage_table
from d5ray.networks.stages.cutting import pieces

COLUMNS = ("stage", "from", "to", "operators", "parameters", "MFLOP", "of all", "keeps", "receives", "sends")
LEFT = ("from", "to", "receives", "sends")


def rows_of(network: Network, stages: int | None, begins: list[str] | None) -> list[dict[str, Any]]:
    """The rows of a balanced cut, or of one by hand. Raises `ConfigurationError` for both at once."""
    if stages is not None and begins:
        raise ConfigurationError("--stages balances a cut, and --cut is one by hand: give one of them")
    cut = Balanced(stages) if stages is not None else Cut(begins or ())
    rows: list[dict[str, Any]] = stage_table(pieces(network, cut)).to_pylist()
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
