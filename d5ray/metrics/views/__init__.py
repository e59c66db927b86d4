"""Views of a run: small tables that DuckDB makes of its rows"""
