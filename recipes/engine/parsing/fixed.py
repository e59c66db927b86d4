"""FIXED as it is held: keys, whole components, or a component leaf by leaf; and what it leaves open

A component that FIXED gives (`"optimizer": Momentum(0.1, 0.9)`, or a class with its `_args` and `_kwargs`) is
fixed as a whole. To leave a part of it open, FIXED gives the class alone, and its leaves one by one:

    FIXED = {"optimizer": Momentum, "optimizer.momentum": 0.9}
    MUTABLE = {"optimizer.learning_rate": 0.1}

Then the class and the leaves that FIXED sets cannot change, every other leaf can. A leaf that FIXED gives as
`...` is open too: `"optimizer.learning_rate": ...` alone fixes the class and nothing else.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from d5ray.errors import ConfigurationError
from d5ray.recipes.engine.parsing import settings


@final
@dataclass(frozen=True)
class Fixed:
    """The part FIXED of the recipe with this name."""

    recipe: str
    keys: Mapping[str, Any]

    def check(self) -> None:
        """Raise `ConfigurationError` where FIXED says something that cannot be kept."""
        for key, value in self.keys.items():
            component = settings.owner(key)
            if component is None:
                if value is ...:
                    raise ConfigurationError(
                        f"FIXED leaves {key!r} open: what is open as a whole belongs into MUTABLE"
                    )
            elif component not in self.keys:
                raise ConfigurationError(
                    f"FIXED sets {key!r}, but not {component!r}, so that it would be fixed for nothing: set "
                    f"{component!r} in FIXED as well"
                )
            elif "." in key:
                self._check_leaf(key, component)

    def _check_leaf(self, key: str, component: str) -> None:
        given = self.keys[component]
        whole = [f"{component}_{what}" for what in ("args", "kwargs") if f"{component}_{what}" in self.keys]
        if component in settings.COMPONENTS:
            called = isinstance(given, str) and "(" in given
            if called or not (isinstance(given, str) or inspect.isclass(given)):
                whole.append(component)
        if whole:
            raise ConfigurationError(
                f"FIXED gives {component!r} as a whole ({', '.join(whole)}) and its leaf {key!r} besides: "
                "give the class alone and every fixed leaf, or the whole alone"
            )

    def by_leaf(self, component: str) -> bool:
        """True if FIXED fixes this component's class, and of its leaves only some."""
        return any(key.startswith(f"{component}.") for key in self.keys)

    def sets(self, key: str) -> bool:
        """True if FIXED gives a value for exactly this key."""
        return key in self.keys and self.keys[key] is not ...

    def refuse(self, key: str, where: str) -> None:
        """Raise `ConfigurationError` if FIXED does not let this key be set in MUTABLE or by --set."""
        if key == "job":
            raise ConfigurationError(f"{where} sets 'job': what a recipe runs is always FIXED")
        component = settings.owner(key)
        if self.sets(key):
            fixed = key
        elif component is not None and component in self.keys:
            if self.by_leaf(component) and "." in key:
                return
            fixed = component
        else:
            return
        advice = ""
        if component is not None and self.by_leaf(component) and fixed == component:
            advice = f" (apart from leaves that it leaves open: set them one by one, as {component}.NAME)"
        raise ConfigurationError(
            f"{where} sets {key!r}, but {fixed!r} is FIXED in the recipe {self.recipe}{advice}: what is "
            "fixed must stay as it is for runs to be comparable; copy the recipe to change it"
        )

    def values(self) -> dict[str, Any]:
        """FIXED without the leaves that it leaves open."""
        return {key: value for key, value in self.keys.items() if value is not ...}

    def normal(self) -> dict[str, Any]:
        """FIXED in one spelling: components made, whether they were given as class, text or instance.

        Equal for every way to write the same; its canonical description is what is hashed and recorded.
        """
        values = self.values()
        normal: dict[str, Any] = {}
        for key, value in values.items():
            component = settings.owner(key)
            if component is None and key in settings.COMPONENTS:
                normal |= self._component(key, values)
            elif component not in settings.COMPONENTS:
                empty = key.endswith("_kwargs") and value == {}
                normal |= {} if empty and component in settings.PASSED_ON else {key: value}
        return normal

    def _component(self, key: str, values: Mapping[str, Any]) -> dict[str, Any]:
        own = {name: value for name, value in values.items() if key in (name, settings.owner(name))}
        kind = settings.COMPONENTS[key]
        if self.by_leaf(key):
            made = settings.written(key, kind, own[key])
            leaves = {name.partition(".")[2] for name in own if "." in name}
            if not leaves or set(settings.hyperparameters(made, kind)) - leaves:
                return own | {key: made}
        made = settings.built(own)[key]
        alone = isinstance(made, (tuple, list)) and len(made) == 1  # one of what there may be several of
        return {key: made[0] if alone else made}
