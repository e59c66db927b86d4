"""Level 0: what an operator is, operators of one's own, and checks of them"""

from d5ray.names.lazy import lazily

__getattr__, __dir__ = lazily(__name__)
