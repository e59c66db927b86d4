"""Models of JAX on their way to other processes, with the classes of Equinox's that the user has written

cloudpickle makes a class without its contents first, and fills it afterwards, so that classes may refer to
each other. Equinox's metaclass looks at fields and `__init__` when a class is made: it must have them then.
"""

import dataclasses
import io
from typing import Any, final

import cloudpickle

from d5ray.identity.moved import unpickled

PACKAGE = "equinox"


@final
@dataclasses.dataclass(frozen=True)
class PackedModel:
    """A model as bytes, among what another process is sent."""

    data: bytes

    @classmethod
    def of(cls, model: Any) -> "PackedModel":
        """The model, packed; raises what its parts raise when they are pickled."""
        file = io.BytesIO()
        _Pickler(file).dump(model)
        return cls(file.getvalue())

    def unpacked(self) -> Any:
        """The model again."""
        return unpickled(self.data)


@final
class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        """Give a class that goes by value its fields' names, and an `__init__` where it has one, at once."""
        reduced = super().reducer_override(obj)
        if not (isinstance(obj, type) and isinstance(reduced, tuple) and _is_equinox(type(obj))):
            return reduced
        make, arguments, *rest = reduced
        contents = {**_outline(obj), **next(each for each in arguments if isinstance(each, dict))}
        return make, tuple(contents if isinstance(each, dict) else each for each in arguments), *rest


def _is_equinox(metaclass: type) -> bool:
    return metaclass.__module__.partition(".")[0] == PACKAGE


def _outline(kind: Any) -> dict[str, Any]:
    """The own fields of a class and its `__init__`, as stand-ins that its real contents will replace."""
    own = vars(kind).get("__annotations__", {})
    static = {field.name for field in dataclasses.fields(kind) if field.metadata.get("static", False)}
    found: dict[str, Any] = {"__annotations__": dict.fromkeys(own, object)}
    found |= {name: _static_field() for name in own if name in static}
    if "__init__" in vars(kind):
        found["__init__"] = _stand_in
    return found


def _static_field() -> Any:
    return dataclasses.field(metadata={"static": True})


def _stand_in(self: Any, *_: Any, **__: Any) -> None:
    """An `__init__` until the class has its own."""
