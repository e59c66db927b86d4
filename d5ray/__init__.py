"""d5ray: Deep500 reborn on Ray. What one runs, reads, subclasses and catches; all else is in namespaces."""

from d5ray.names.lazy import lazily

__getattr__, __dir__ = lazily(__name__)
