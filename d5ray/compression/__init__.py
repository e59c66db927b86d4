"""Gradient compression: compressors, error feedback, and the reductions of compressed vectors"""

from d5ray.names.lazy import lazily

__getattr__, __dir__ = lazily(__name__)
