"""Samplers: the order in which an epoch's samples are seen, and checks of it"""

from d5ray.names.lazy import lazily

__getattr__, __dir__ = lazily(__name__)
