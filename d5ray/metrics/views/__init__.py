"""What is looked at of a run, as small tables that DuckDB makes of its rows"""
