"""Agents that are slow, come late, or die, and what a run does then; plans of faults are `d5.Faults()`"""

from d5ray.names.lazy import lazily

__getattr__, __dir__ = lazily(__name__)
