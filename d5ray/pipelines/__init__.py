"""Pipelines: a network cut into stages, and schedules of micro-batches through them"""

from d5ray.names.lazy import lazily

__getattr__, __dir__ = lazily(__name__)
