"""OwnOperator: an operator of the user's own, whatever it is written in, as frameworks can call it"""

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from d5ray.errors import ConfigurationError
from d5ray.kits.laboratory.bench import user_objects
from d5ray.operators.custom.custom_operator import CustomOp
from d5ray.operators.framework import Framework
from d5ray.operators.tensors.tensor_descriptor import element_type
from d5ray.ops.custom.arrays import instance_of

BY_PACKAGE: Final[Mapping[str, str]] = {
    "torch": "torch", "keras": "tensorflow", "tensorflow": "tensorflow", "jax": "jax", "numpy": "numpy",
    "cupy": "cupy",
}  # fmt: skip
OF_ANY: Final = ("torch", "numpy")  # that an operator of any framework is measured under, unless asked


@final
@dataclass(frozen=True)
class OwnOperator:
    """A custom operator, a module, class of modules or layers, or a function of arrays.

    name: in tables. thing: a class is made into an object by whoever calls it.
    """

    name: str
    thing: Any

    @property
    def is_custom(self) -> bool:
        """True for an operator of d5ray's, which every framework can call."""
        kind = self.thing if isinstance(self.thing, type) else type(self.thing)
        return issubclass(kind, CustomOp)

    @property
    def calls(self) -> str:
        """The framework that its class is of, or whose functions it calls; empty where there is none."""
        thing = self.thing
        kinds = thing.__mro__ if isinstance(thing, type) else type(thing).__mro__
        modules = [getattr(thing, "__module__", None), *(kind.__module__ for kind in kinds)]
        if (function := self._function) is not None:
            known = function.__globals__
            modules += [_module(known[name]) for name in function.__code__.co_names if name in known]
        packages = [str(module).partition(".")[0] for module in modules]
        return next((BY_PACKAGE[each] for each in packages if each in BY_PACKAGE), "")

    @property
    def home(self) -> str:
        """The framework that it is measured under by itself; empty where nothing tells.

        Of a function of plain arithmetic, which works on arrays of any, one that its file imports, or NumPy.
        """
        function = self._function
        if self.calls or function is None:
            return self.calls
        imported = {_module(each) for each in function.__globals__.values() if inspect.ismodule(each)}
        return next((BY_PACKAGE[name] for name in BY_PACKAGE if name in imported), "numpy")

    @property
    def _function(self) -> Any:
        """The function in Python that it is; None where it is something else."""
        return inspect.unwrap(self.thing) if inspect.isfunction(self.thing) else None

    def check(self) -> None:
        """Raise `ConfigurationError` for what cannot be called, and for a class that needs arguments."""
        if not callable(self.thing) and not self.is_custom:
            raise ConfigurationError(
                f"{self.name} is a {type(self.thing).__name__}: give a function of arrays, an nn.Module, a "
                "Keras layer, or an operator of d5ray's (CustomPythonOp, compile_custom_cppop)"
            )
        self.made()

    def frameworks(self, asked: tuple[str, ...]) -> tuple[str, ...]:
        """The frameworks that it is measured under. asked: by the user, () where nothing was.

        Raises `ConfigurationError` where that is none.
        """
        if self.is_custom:
            return asked or OF_ANY
        if asked and not self.calls and self._function is not None:
            return asked  # plain arithmetic
        home = self.home
        if not home:
            raise ConfigurationError(
                f"nothing tells which framework's arrays {self.name} takes, a {type(self.thing).__name__}: "
                "give a function that calls it"
            )
        if asked and home not in asked:
            raise ConfigurationError(
                f"{self.name} is written in {home}: give --frameworks {home}, or leave it out"
            )
        return (home,)

    def made(self) -> Any:
        """The object that is called. Raises `ConfigurationError` where its class needs arguments."""
        if self.is_custom:
            return instance_of(self.thing)
        if not isinstance(self.thing, type):
            return self.thing
        return user_objects.made(self.thing, self.name)

    def usable(self, framework: Framework, *, training: bool) -> Any:
        """The operator as the framework calls it, on its device, in training or in evaluation mode."""
        made = framework.usable(self.made())
        if hasattr(made, "train") and hasattr(made, "to"):
            device = getattr(framework, "device", None)
            made = (made if device is None else made.to(device)).train(training)
        return made

    def parameter_bytes(self, made: Any) -> int:
        """The bytes of the parameters of an object that has some."""
        if hasattr(made, "parameters"):
            return sum(each.numel() * each.element_size() for each in made.parameters())
        weights = getattr(made, "trainable_variables", ())
        kinds = [element_type(getattr(each.dtype, "name", each.dtype)) for each in weights]
        return sum(math.prod(each.shape) * kind.itemsize for each, kind in zip(weights, kinds, strict=True))


def _module(thing: Any) -> str:
    """The module that something belongs to, or is."""
    own = thing.__name__ if inspect.ismodule(thing) else getattr(thing, "__module__", None)
    return own or ""
