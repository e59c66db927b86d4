"""d5ray: Deep500 reborn on Ray. What one runs, reads, subclasses and catches; all else is in namespaces."""

from d5ray.identity.links import check
from d5ray.names.lazy import lazily

check(__path__[0])
__getattr__, __dir__ = lazily(__name__)
