"""Refusal of statements: only those that merely read the tables are asked

DuckDB's own rules keep it from every file but those of the run. They do not keep a statement from writing
those, and since version 2 a SELECT may hold one that writes: `WITH x AS (COPY … TO …) SELECT …`.
"""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from d5ray.checks import check_text
from d5ray.errors import ConfigurationError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# What makes rows of nothing, of its arguments, or of DuckDB's own lists.
_MAKERS = frozenset(
    """generate_series histogram histogram_values json_each json_tree pg_timezone_names pragma_show
    pragma_table_info pragma_version range repeat repeat_row summary unnest duckdb_columns duckdb_functions
    duckdb_keywords duckdb_settings duckdb_tables duckdb_types duckdb_views""".split()  # noqa: SIM905
)
_READING = frozenset(("SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"))
_WRITING = frozenset(
    """alter attach call checkpoint copy create delete detach drop execute export import insert install load
    merge pragma prepare set reset truncate update use vacuum""".split()  # noqa: SIM905
)
_ALL_MAKERS = (
    "SELECT DISTINCT lower(function_name) AS name FROM duckdb_functions() "
    "WHERE function_type IN ('table', 'table_macro', 'pragma')"
)
_ONLY = "a run's tables are read only: write one SELECT (or FROM, PIVOT, DESCRIBE, SUMMARIZE, EXPLAIN)"


def check(connection: "DuckDBPyConnection", query: str) -> None:
    """Raise `ConfigurationError` unless the query is one statement that reads; DuckDB's error if none."""
    from duckdb import StatementType  # noqa: PLC0415 (loaded by those who ask)

    check_text("query", query)
    statements = connection.extract_statements(query)
    if len(statements) != 1:
        found = f"has {len(statements)} statements" if statements else "has no result"
        raise ConfigurationError(f"The query {query!r} {found}: write one SELECT")
    kind = statements[0].type
    if kind not in (StatementType.SELECT, StatementType.EXPLAIN, StatementType.MULTI):
        raise _read_only_error(kind.name)
    text = statements[0].query
    answer = connection.sql("SELECT json_serialize_sql($1::VARCHAR) AS tree", params=[text])
    tree = json.loads(answer.to_arrow_table()["tree"][0].as_py())
    if tree["error"]:  # EXPLAIN, and a PIVOT whose columns are not known yet
        _check_words(connection, text)
    else:
        _check_tree(tree)


def _check_tree(tree: Any) -> None:
    for node in _nodes(tree):
        kind = str(node.get("type", ""))
        if kind.endswith("_NODE") and kind not in _READING:
            raise _read_only_error(kind.removesuffix("_NODE").removesuffix("_QUERY"))
        if kind == "TABLE_FUNCTION":
            name = _name(node.get("function", {}))
            if name not in _MAKERS:
                raise _read_only_error(f"{name}()")


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    waiting = [tree]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            yield found
            waiting += found.values()
        elif isinstance(found, list):
            waiting += found


def _name(function: dict[str, Any]) -> str:
    path = function.get("qualified_name", {}).get("path") or [function.get("function_name", "?")]
    return str(path[-1]).lower()


def _check_words(connection: "DuckDBPyConnection", query: str) -> None:
    """Refuse words that could begin something else, and unknown makers of rows, where there is no tree."""
    import duckdb  # noqa: PLC0415

    makers = set(connection.sql(_ALL_MAKERS).to_arrow_table()["name"].to_pylist())
    tokens = [(at, kind) for at, kind in duckdb.tokenize(query) if kind != duckdb.token_type.comment]
    ends = [at for at, _ in tokens[1:]] + [len(query.encode())]
    texts = [query.encode()[at:end].decode().strip() for (at, _), end in zip(tokens, ends, strict=True)]
    for number, ((_, kind), text) in enumerate(zip(tokens, texts, strict=True)):
        if kind == duckdb.token_type.string_const:
            continue
        word = text.partition("/*")[0].partition("--")[0].strip().strip('"').lower()
        if word in _WRITING and not text.startswith('"'):
            raise _read_only_error(word.upper())
        follows = texts[number + 1] if number + 1 < len(texts) else ""
        if word in makers - _MAKERS and follows.startswith("("):
            raise _read_only_error(f"{word}()")


def _read_only_error(what: str) -> ConfigurationError:
    return ConfigurationError(f"The query failed. {what} is refused: {_ONLY}")
