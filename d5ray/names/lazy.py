"""A namespace's attributes, found when they are asked for; the module of one public name is imported alone"""

import random
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any, final

from d5ray.names.deep500 import moved
from d5ray.names.kits import missing_kit
from d5ray.names.namespaces import TOP, places, public, shown, similar, suggested, table
from d5ray.names.renamed import RENAMED


@final
class NoSuchName(AttributeError):
    """A namespace of d5ray has no such name; what is near is looked for when the message is read.

    kit: the one that has it, and is not there.
    """

    def __init__(self, namespace: str, name: str, kit: str = "") -> None:
        super().__init__(namespace, name, obj=namespace)  # with obj, Python adds no suggestion of its own
        self._kit = kit
        self._asked = f"{namespace.replace(TOP, 'd5', 1)}.{name}"

    def __str__(self) -> str:
        if self._kit:
            return f"{self._asked} is in a kit that is not there: install d5ray/kits/{self._kit}"
        name = self._asked.rpartition(".")[2]
        if said := moved(name):
            return said
        near = similar(name)
        end = suggested(near) if near else f"dir({self._asked.rpartition('.')[0]}) lists those that are there"
        return f"there is no {self._asked}: {end}"


def lazily(namespace: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a namespace, which imports a name when it is asked for.

    A name that was renamed, or has gone from the top to a namespace, is found for one more release, with a
    warning.
    """

    def get(name: str) -> Any:
        if name == "__all__":
            return sorted(table(namespace))
        if name in table(namespace):
            module = table(namespace)[name]
            before = random.getstate()  # from which libraries such as rich draw as they are imported
            try:
                where = import_module(f"{TOP}.{name}" if module == TOP else module)
            except ModuleNotFoundError as error:
                if not (kit := missing_kit(error)):
                    raise
                raise NoSuchName(namespace, name, kit) from None
            found = where if module == TOP else getattr(where, name)
            random.setstate(before)
        elif (now := RENAMED.get(name, name)) in places() and namespace in (TOP, places()[now]):
            warnings.warn(
                f"{namespace.replace(TOP, 'd5', 1)}.{name} is {shown(now)} now, and the old name goes with "
                "the next release",
                DeprecationWarning,
                stacklevel=2,
            )
            found = public(now)
        else:
            raise NoSuchName(namespace, name)
        vars(sys.modules[namespace])[name] = found  # so that nobody asks, or is warned, twice
        return found

    return get, lambda: sorted([*table(namespace), "__doc__"])
