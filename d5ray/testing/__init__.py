"""Testing: what one brings, beside the framework that it is written for"""

from d5ray.names.lazy import lazily

__getattr__, __dir__ = lazily(__name__)
