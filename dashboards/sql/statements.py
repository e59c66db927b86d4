"""Input of the shell of `d5ray sql`: its commands, the tables, and where a statement ends"""

from d5ray.metrics.judge.summary import SUMMARY
from d5ray.metrics.record.schema import TABLES

KNOWN = {**TABLES, "summary": SUMMARY}
HELP = {
    ".help": "this",
    ".tables": "the tables, and how many rows each has",
    ".schema TABLE": "the columns of a table, and their types",
    ".runs": "the runs that there are",
    ".use RUN": "ask another run, or a folder of runs",
    ".rows N": "show at most N rows of a result",
    ".table, .json, .csv": "how results are shown from now on",
    ".exit": "leave; so does Ctrl-D",
}


def statements(text: str) -> list[str]:
    """The statements that a semicolon ends, and last what comes after the last one.

    >>> statements("select ';'; select 2")
    ["select ';'", ' select 2']
    """
    import duckdb  # noqa: PLC0415 (loaded by those who ask)

    data, begin, found = text.encode(), 0, []
    for at, kind in duckdb.tokenize(text):
        if kind == duckdb.token_type.operator and data[at : at + 1] == b";":
            found.append(data[begin:at].decode())
            begin = at + 1
    return [*found, data[begin:].decode()]
