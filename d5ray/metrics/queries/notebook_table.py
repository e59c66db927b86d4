"""An Arrow table that a notebook shows as one"""

from typing import Any, final

import pyarrow as pa

from d5ray.checks import check_kind
from d5ray.display import notebook_html

MOST_SHOWN = 20  # rows


@final
class Table:
    """The result of a query. It has everything that `arrow`, the pyarrow.Table in it, has: to_pandas(), …

    pyarrow, pandas, polars and DuckDB take it as it is (the Arrow PyCapsule interface).
    """

    def __init__(self, table: pa.Table) -> None:
        check_kind("table", table, pa.Table, "a pyarrow.Table")
        self.arrow = table

    def __getattr__(self, name: str) -> Any:
        if name == "arrow" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.arrow, name)

    def __getitem__(self, key: Any) -> Any:
        return self.arrow[key]

    def __len__(self) -> int:
        return int(self.arrow.num_rows)

    def __eq__(self, other: object) -> bool:
        return bool(self.arrow.equals(other.arrow if isinstance(other, Table) else other))

    __hash__ = None  # type: ignore[assignment]  # as a pyarrow.Table has none

    def __repr__(self) -> str:
        return repr(self.arrow)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.arrow.__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        rows = [list(row.values()) for row in self.arrow.slice(0, MOST_SHOWN).to_pylist()]
        numeric = [pa.types.is_integer(f.type) or pa.types.is_floating(f.type) for f in self.arrow.schema]
        left = len(self) - len(rows)
        under = f"{len(self):,} rows, the first {len(rows)} are shown" if left else ""
        return notebook_html.block(
            notebook_html.table(self.arrow.column_names, rows, numeric), notebook_html.small(under)
        )
