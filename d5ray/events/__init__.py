"""Events around a training: stopping, checkpoints, curves, qualities that are measured on the way"""

from d5ray.names.lazy import lazily

__getattr__, __dir__ = lazily(__name__)
