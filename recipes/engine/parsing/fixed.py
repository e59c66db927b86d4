"""FIXED as it is held: keys, whole components, or a component leaf by leaf; and what it leaves open

A component that FIXED gives (`"optimizer": Momentum(0.1, 0.9)`, or a class with its `_args` and `_kwargs`) is
fixed as a whole. To leave a part of it open, FIXED gives the class alone, and its leaves one by one:

    FIXED = {"optimizer": Momentum, "optimizer.momentum": 0.9}
    MUTABLE = {"optimizer.learning_rate": 0.1}

Then the class and the leaves that FIXED sets cannot change, every other leaf can. A leaf that FIXED gives as
`...` is open too: `"optimizer.learning_rate": ...` alone fixes the class and nothing else. Of the data
`"dataset.text": ...` opens this leaf alone.
"""

import inspect
from collections.abc import Mapping
from functools import cached_property
from typing import Any, final

from d5ray.errors import ConfigurationError
from d5ray.recipes.engine.parsing import settings
from d5ray.recipes.engine.parsing.texts import written


@final
class Fixed:
    """The part FIXED of the recipe with this name; raises `ConfigurationError` for what cannot be kept."""

    def __init__(self, recipe: str, keys: Mapping[str, Any]) -> None:
        self.recipe = recipe
        self._groups = settings.grouped(keys)
        self.values = settings.grouped({key: value for key, value in keys.items() if value is not ...})
        for name, own in self._groups.items():
            _check(name, own)

    def sets(self, key: str) -> bool:
        """True if FIXED gives a value for exactly this key."""
        return key in self.values.get(settings.owner(key) or key, {})

    def tells(self, name: str) -> bool:
        """True if FIXED gives this with all that belongs to it, and leaves nothing of it open."""
        own = self._groups.get(name, {})
        return name in own and not _by_leaf(own)

    def refuse(self, groups: settings.Groups, where: str) -> None:
        """Raise `ConfigurationError` for a key that FIXED does not let MUTABLE or --set set."""
        for name, own in groups.items():
            fixed, held = self.values.get(name, {}), self._groups.get(name, {})
            for key in own:
                if key == "job":
                    raise ConfigurationError(f"{where} sets 'job': what a recipe runs is always FIXED")
                if key in fixed:
                    raise self._is_fixed(key, key, where)
                if name == "dataset" and ... in held.values() and key not in held:
                    opened = ", ".join(leaf for leaf, value in held.items() if value is ...)
                    raise self._is_fixed(key, name, where, f" (apart from {opened})")
                if name in held and not (_by_leaf(held) and "." in key):
                    open_ = f" (apart from leaves that it leaves open: set them one by one, as {name}.NAME)"
                    raise self._is_fixed(key, name, where, open_ if _by_leaf(held) else "")

    def _is_fixed(self, key: str, fixed: str, where: str, advice: str = "") -> ConfigurationError:
        return ConfigurationError(
            f"{where} sets {key!r}, but {fixed!r} is FIXED in the recipe {self.recipe}{advice}: what is "
            "fixed must stay as it is for runs to be comparable; copy the recipe to change it"
        )

    @cached_property
    def normal(self) -> dict[str, Any]:
        """FIXED in one spelling: components made, whether they were given as class, text or instance.

        Equal for every way to write the same; its canonical description is what is hashed and recorded.
        """
        normal: dict[str, Any] = {}
        for name, own in self.values.items():
            if name in settings.COMPONENTS:
                normal |= self._component(name, own)
            else:  # empty arguments say nothing
                empty = {key for key, value in own.items() if key == f"{name}_kwargs" and value == {}}
                normal |= {key: value for key, value in own.items() if key not in empty}
        return normal

    def _component(self, name: str, own: dict[str, Any]) -> dict[str, Any]:
        if _by_leaf(self._groups[name]):
            kind = settings.COMPONENTS[name]
            made = written(name, kind, own[name])
            leaves = {key.partition(".")[2] for key in own if "." in key}
            if not leaves or set(settings.hyperparameters(made, kind)) - leaves:
                return own | {name: made}
        made = settings.values({name: own})[name]
        alone = isinstance(made, (tuple, list)) and len(made) == 1  # one of what there may be several of
        return {name: made[0] if alone else made}


def _by_leaf(own: Mapping[str, Any]) -> bool:
    """True if a component's class is fixed, and of its leaves only some."""
    return any("." in key for key in own)


def _check(name: str, own: Mapping[str, Any]) -> None:
    """Raise `ConfigurationError` where FIXED says something of a component that cannot be kept."""
    if own.get(name) is ...:
        raise ConfigurationError(f"FIXED leaves {name!r} open: what is open as a whole belongs into MUTABLE")
    if name not in own:
        raise ConfigurationError(
            f"FIXED sets {next(iter(own))!r}, but not {name!r}, so that it would be fixed for nothing: set "
            f"{name!r} in FIXED as well"
        )
    if not _by_leaf(own):
        return
    given = own[name]
    whole = [key for key in (f"{name}_args", f"{name}_kwargs") if key in own]
    if name in settings.COMPONENTS:
        called = isinstance(given, str) and "(" in given
        if called or not (isinstance(given, str) or inspect.isclass(given)):
            whole.append(name)
    if whole:
        leaf = next(key for key in own if "." in key)
        raise ConfigurationError(
            f"FIXED gives {name!r} as a whole ({', '.join(whole)}) and its leaf {leaf!r} besides: "
            "give the class alone and every fixed leaf, or the whole alone"
        )
