"""Parameter servers: their consistency, their rules, and what an optimizer sees of them"""

from d5ray.names.lazy import lazily

__getattr__, __dir__ = lazily(__name__)
