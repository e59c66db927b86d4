"""The simulated world: links that cost latency and bandwidth, and times of computing"""

from d5ray.names.lazy import lazily

__getattr__, __dir__ = lazily(__name__)
