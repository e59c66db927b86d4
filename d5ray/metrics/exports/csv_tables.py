"""A run as a folder of CSV files, one for each of its tables

The columns are those of the tables. A missing value is an empty field, an empty text is `""`; a measured
value that is not a number is `nan`. Instants are in UTC with nanoseconds.
"""

from pathlib import Path
from typing import ClassVar, final

import pyarrow as pa

from d5ray.metrics.exports.exporter import WholeExporter
from d5ray.metrics.record.reader import Run


@final
class CSVExporter(WholeExporter):
    """`samples.csv`, `runs.csv`, `metrics.csv`, `environment.csv`, `events.csv`, `verdicts.csv`."""

    name: ClassVar[str] = "csv"
    ending: ClassVar[str] = "-csv"

    def write(self, run: Run, target: Path) -> None:
        import pyarrow.csv  # noqa: PLC0415 - loaded by those who ask

        target.mkdir()
        for name, table in run.tables().items():
            pyarrow.csv.write_csv(_plain(table), target / f"{name}.csv")


def _plain(table: pa.Table) -> pa.Table:
    """The table with texts instead of numbered words."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(place, field.name, table[field.name].cast(field.type.value_type))
    return table
