"""Metrics: definitions, statistics, verdicts, the record of runs, probes, queries, views, exports"""
