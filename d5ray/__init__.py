"""d5ray: Deep500 reborn on Ray. What one runs, reads, subclasses and catches; all else is in namespaces."""

from d5ray import errors
from d5ray.identity.links import check
from d5ray.names.kits import answer_to_names_of_before
from d5ray.names.lazy import lazily

check(__path__[0])
answer_to_names_of_before()
__getattr__, __dir__ = lazily(__name__)
vars(errors)["__getattr__"] = lazily(errors.__name__)[0]  # which `names` itself imports
