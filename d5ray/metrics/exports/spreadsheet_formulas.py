"""Texts that a spreadsheet would take for formulas, as it shows them and does not compute them

A run may be a stranger's, and the spreadsheet that opens a CSV file computes a cell `=HYPERLINK(…)`. OWASP's
advice (CSV Injection) is an apostrophe before what begins a formula, such as a sign, a tab or a line end.
"""

from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

BEGINS = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"  # the last four are the wide ones of East Asian texts
NUMBERS = r"^[-+][0-9.,:eE +-]*$"  # a row of them: whatever it computes does no harm
Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


def disarmed(rows: Rows) -> Rows:
    """The rows, with an apostrophe before each text that begins with a sign of `BEGINS`; numbers stay.

    >>> disarmed(pa.table({"text": ["=1+1", "a=1", "-1 100"], "number": [-1.0, 2.0, 3.0]})).to_pydict()
    {'text': ["'=1+1", 'a=1', '-1 100'], 'number': [-1.0, 2.0, 3.0]}
    """
    for place, field in enumerate(rows.schema):
        if _is_text(field.type):
            rows = rows.set_column(place, field, _disarmed(rows.column(place)))
        elif pa.types.is_dictionary(field.type) and _is_text(field.type.value_type):
            plain = rows.column(place).cast(field.type.value_type)
            rows = rows.set_column(place, field, _disarmed(plain).dictionary_encode().cast(field.type))
    return rows


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _disarmed(texts: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    kind = texts.type
    first = pc.utf8_slice_codeunits(texts, 0, 1)
    numbers = pc.match_substring_regex(texts, NUMBERS)
    armed = pc.and_not(pc.is_in(first, pa.array(list(BEGINS), kind)), numbers)
    quoted = pc.binary_join_element_wise(pa.scalar("'", kind), texts, pa.scalar("", kind))
    return pc.if_else(armed, quoted, texts)
