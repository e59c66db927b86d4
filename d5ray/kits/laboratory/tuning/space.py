"""The space of a search: keys of MUTABLE with domains of Ray Tune's or lists, checked before it begins"""

import ast
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from d5ray.errors import ConfigurationError, nearest
from d5ray.experiment import Experiment
from d5ray.kits.laboratory.tuning import search
from d5ray.recipes.engine.parsing import settings
from d5ray.recipes.engine.recipe import Recipe

DRAWS: Final = 20  # of which one at least must be an experiment
SIZES: Final = (  # on which the room hangs that a trial takes
    "agents", "mesh", "cpus_per_agent", "gpus_per_agent", "executor", "executor_kwargs",
)  # fmt: skip


def check(recipe: Recipe, space: object) -> dict[str, Any]:
    """The space as domains of Tune's, if it is one of the recipe's; raises `ConfigurationError`."""
    if not isinstance(space, Mapping) or not space:
        raise ConfigurationError(
            f"space is {space!r}: it must be a dictionary of domains or lists by keys of MUTABLE, such as "
            '{"batch_size": [16, 32]}'
        )
    domains = {}
    for key, value in space.items():
        _check_key(recipe, key)
        if isinstance(value, (list, tuple)) and not value:
            raise ConfigurationError(f"space has nothing to choose from for {key!r}: give it a value")
        domains[key] = search.domain(value)
        if domains[key] is None:
            raise ConfigurationError(
                f"space has {value!r} for {key!r}: it must be a domain such as ray.tune.loguniform(0.001, 1)"
                ", or a list; give a value that all trials have by overrides"
            )
        _check_bounds(key, domains[key])
    _check_draws(recipe, domains)
    return domains


def written(given: str) -> tuple[str, Any]:
    """A key and the domain that a text of the command line gives it: `lr=loguniform(0.001, 1)`, or a list."""
    key, equals, text = (part.strip() for part in given.partition("="))
    if not equals or not key:
        raise ConfigurationError(
            f"--over {given!r}: write it as key=domain, such as --over 'batch_size=[16, 32]'"
        )
    with suppress(ValueError, SyntaxError):
        return key, ast.literal_eval(text)
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.keywords:
            raise ValueError("it is no domain with its bounds")
        return key, search.made(call.func.id, *map(ast.literal_eval, call.args))
    except (SyntaxError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"--over {key}={text}: {error}; write a domain of Ray Tune's such as "
            f"{key}=loguniform(0.001, 1), or a list, {key}=[16, 32]"
        ) from error


def with_settings(recipe: Recipe, found: Mapping[str, Any]) -> Recipe:
    """The recipe with these settings, in the place of its own."""
    plain = {key: getattr(value, "item", lambda value=value: value)() for key, value in found.items()}
    return replace(recipe, overrides={**recipe.overrides, **plain})


def largest(recipe: Recipe, space: Mapping[str, Any]) -> list[Experiment]:
    """Trials of which one takes as much room as any does."""
    varied: list[dict[str, Any]] = [{}]
    for key in SIZES:
        values = _choices(space.get(key))
        bound = getattr(space.get(key), "upper", None)  # of a domain of numbers
        values += [] if bound is None else [bound - 1 if isinstance(bound, int) else bound]
        varied += [{key: value} for value in values]
    found: list[Experiment] = []
    for each in varied:
        with suppress(ConfigurationError):  # with other settings it may fit, and the trial says what does not
            found.append(with_settings(recipe, each).made())
    return found


def _check_key(recipe: Recipe, key: object) -> None:
    if not isinstance(key, str):
        raise ConfigurationError(f"space has the key {key!r}: keys are texts, such as 'batch_size'")
    if key == "seed":
        raise ConfigurationError(
            "space has 'seed': all trials of a search have the recipe's seed, and the best settings are "
            "judged with others; leave it out"
        )
    replace(recipe, overrides={**recipe.overrides, key: None})  # refuses what is FIXED, or no key at all
    own = settings.owner(key) or key
    mutable = {settings.owner(each) or each for each in recipe.mutable}
    if own not in mutable and not (own != key and own in recipe.held.values):  # a leaf that FIXED leaves open
        raise ConfigurationError(
            f"space has {key!r}, which is not in MUTABLE of the recipe {recipe.name}: {nearest(key, mutable)}"
            "; to search it, put it there in a copy of the recipe"
        )


def _check_bounds(key: str, domain: Any) -> None:
    low, high = getattr(domain, "lower", None), getattr(domain, "upper", None)
    if low is None or high is None:
        return
    with suppress(ValueError):  # of Tune, where a whole number is to be between 2 and 2
        domain.sample(random_state=0)
        if low <= high:
            return
    raise ConfigurationError(
        f"space has bounds from {low} to {high} for {key!r}: no value is between them; give the lower one "
        "first, as in loguniform(0.1, 1)"
    )


def _choices(domain: Any) -> list[Any]:
    """The values of a domain; none where it has too many."""
    return list(domain["grid_search"] if isinstance(domain, Mapping) else getattr(domain, "categories", ()))


def _drawn(domain: Any) -> Any:
    values = _choices(domain)
    return values[0] if values else domain.sample()


def _check_draws(recipe: Recipe, space: Mapping[str, Any]) -> None:
    """Some settings do not go together, and their trials fail; but not all may."""
    for draw in range(DRAWS):
        try:
            made = with_settings(recipe, {key: _drawn(each) for key, each in space.items()}).made()
        except ConfigurationError:
            if draw == DRAWS - 1:
                raise
            continue
        if not isinstance(made, Experiment):
            raise ConfigurationError(
                f"the recipe {recipe.name} runs a {type(made).__name__}, which is no training: only the "
                "settings of a training are searched"
            )
        return
