"""Level 1: networks as graphs, what executes them, and how they are cut and split"""

from d5ray.names.lazy import lazily

__getattr__, __dir__ = lazily(__name__)
