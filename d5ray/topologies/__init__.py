"""Topologies: who speaks with whom, with which mixing weights, and what an algorithm may need of them"""

from d5ray.names.lazy import lazily

__getattr__, __dir__ = lazily(__name__)
