"""Optimizers: update rules and what wraps them, distributed optimizers, and checks of both"""

from d5ray.names.lazy import lazily

__getattr__, __dir__ = lazily(__name__)
