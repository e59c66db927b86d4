"""Metrics: definitions, statistics, verdicts, the record of runs, probes, queries, views, exports"""

from d5ray.names.lazy import lazily

__getattr__, __dir__ = lazily(__name__)
