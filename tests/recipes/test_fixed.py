"""Claims about FIXED: nothing subverts it, a leaf can be left open, and one meaning has one hash"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as tuned
from hypothesis import strategies as st

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.recipes.engine.recipe import Recipe

BASE: dict[str, Any] = {"model": "mlp", "dataset": "digits"}
OPEN: dict[str, Any] = BASE | {"optimizer": d5.optimizers.Momentum, "optimizer.momentum": 0.9}
RATE: dict[str, Any] = {"optimizer.learning_rate": 0.1}


def recipe(fixed: dict[str, Any], mutable: dict[str, Any] | None = None, **overrides: Any) -> Recipe:
    """With the overrides written with __ for a dot."""
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    return Recipe.of(fixed, mutable or {}, [], name="test", overrides=dotted)


# -- leaves -----------------------------------------------------------------------------------------------


def test_a_leaf_that_fixed_leaves_open_can_change() -> None:
    """By MUTABLE and by --set; the fixed leaf stays, and the hash does not know the open one."""
    own = recipe(OPEN, RATE)
    assert own.made().optimizer == d5.optimizers.Momentum(0.1, 0.9)
    tried = recipe(OPEN, RATE, optimizer__learning_rate=0.5)
    assert tried.made().optimizer == d5.optimizers.Momentum(0.5, 0.9)
    assert tried.hash == own.hash != recipe(OPEN | {"optimizer.momentum": 0.8}, RATE).hash


def test_three_dots_leave_a_leaf_open_and_fix_the_class() -> None:
    """`...` alone: every leaf is open, the class is not."""
    fixed = BASE | {"optimizer": d5.optimizers.Momentum, "optimizer.learning_rate": ...}
    made = recipe(fixed, RATE | {"optimizer.momentum": 0.3}, optimizer__learning_rate=2).made()
    assert made.optimizer == d5.optimizers.Momentum(2, 0.3)
    with pytest.raises(ConfigurationError, match="'optimizer' is FIXED"):
        recipe(fixed, RATE, optimizer=d5.optimizers.SGD)
    assert recipe(fixed, RATE).hash == recipe(fixed | {"optimizer": "momentum"}, RATE).hash


def test_leaves_of_what_is_passed_on_are_entries_of_its_arguments() -> None:
    """A model of which one argument is fixed and another free."""
    fixed = {"dataset": "digits", "model": "resnet", "model.depth": 8}
    mutable: dict[str, Any] = {"optimizer": d5.optimizers.SGD(0.1), "model.width": 1}
    assert recipe(fixed, mutable).made().model_kwargs == {"depth": 8, "width": 1}
    assert recipe(fixed, mutable, model__width=2).made().model_kwargs == {"depth": 8, "width": 2}
    with pytest.raises(ConfigurationError, match=r"'model\.depth' is FIXED"):
        recipe(fixed, mutable, model__depth=14)


WHOLE = BASE | {"optimizer": d5.optimizers.Momentum, "optimizer_args": (0.1, 0.9)}
SUBVERSIONS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]] = {
    "a fixed leaf": (OPEN, RATE, {"optimizer.momentum": 0.5}, "'optimizer.momentum' is FIXED"),
    "a fixed leaf through arguments": (OPEN, RATE, {"optimizer_args": (0.1, 0.5)}, "one by one, as opt"),
    "a fixed leaf through keywords": (OPEN, RATE, {"optimizer_kwargs": {"momentum": 0.5}}, "is FIXED"),
    "the class of fixed leaves": (OPEN, RATE, {"optimizer": "SGD"}, "'optimizer' is FIXED"),
    "a leaf of a fixed instance": (
        BASE | {"optimizer": d5.optimizers.Momentum(0.1, 0.9)}, {}, {"optimizer.momentum": 0.5},
        "'optimizer' is FIXED",
    ),
    "a leaf of a fixed class with arguments": (WHOLE, {}, {"optimizer.momentum": 0}, "'optimizer' is FIXED"),
    "keywords beside fixed arguments": (WHOLE, {}, {"optimizer_kwargs": {}}, "'optimizer' is FIXED"),
    "a leaf of a fixed default": (
        BASE | {"train_sampler": d5.samplers.ShuffleSampler}, {"optimizer": d5.optimizers.SGD(1)},
        {"train_sampler.x": 1},
        "'train_sampler' is FIXED",
    ),
    "arguments of a fixed model": (
        BASE, {"optimizer": d5.optimizers.SGD(1)}, {"model_kwargs": {"hidden": (1,)}}, "'model' is FIXED",
    ),
    "another root of a fixed data set": (
        BASE, {"optimizer": d5.optimizers.SGD(1)}, {"dataset.root": "/other"}, "'dataset' is FIXED",
    ),
    "what is run": (BASE, {"optimizer": d5.optimizers.SGD(1)}, {"job": dict}, "'job': what a recipe runs is"),
}  # fmt: skip


@pytest.mark.parametrize("name", SUBVERSIONS)
def test_nothing_subverts_what_is_fixed(name: str) -> None:
    """Neither MUTABLE nor --set, key by key and below."""
    fixed, mutable, attack, words = SUBVERSIONS[name]
    recipe(fixed, mutable)
    with pytest.raises(ConfigurationError, match=words):
        Recipe.of(fixed, mutable, [], name="test", overrides=attack)
    with pytest.raises(ConfigurationError, match=f"{words}|FIXED and in"):
        Recipe.of(fixed, mutable | attack, [], name="test")


MEANINGLESS: dict[str, tuple[dict[str, Any], str]] = {
    "arguments of what is not fixed": ({"model_kwargs": {"depth": 44}}, "'model_kwargs', but not 'model'"),
    "a leaf of what is not fixed": ({"optimizer.momentum": 0.9}, "'optimizer.momentum', but not 'optimizer'"),
    "a leaf of an instance": (
        {"optimizer": d5.optimizers.Momentum(0.1, 0.9), "optimizer.momentum": 0.9},
        "as a whole .optimizer. and its",
    ),
    "a leaf besides arguments": (
        {"optimizer": d5.optimizers.SGD, "optimizer_args": (1,), "optimizer.momentum": 0},
        "as a whole .optimizer_args",
    ),
    "an open key": ({"epochs": ...}, "leaves 'epochs' open.*MUTABLE"),
}  # fmt: skip


@pytest.mark.parametrize("name", MEANINGLESS)
def test_what_fixed_cannot_mean_is_refused(name: str) -> None:
    fixed, words = MEANINGLESS[name]
    with pytest.raises(ConfigurationError, match=words):
        recipe(fixed, {"seed": 1})


@pytest.mark.parametrize(
    ("fixed", "changes"),
    [
        ({"agents": 2}, {"topology": d5.topologies.Ring(4)}),
        ({"topology": d5.topologies.Ring(4)}, {"agents": 2}),
    ],
)
def test_agents_and_topology_hold_each_other(fixed: dict[str, Any], changes: dict[str, Any]) -> None:
    """Whichever is fixed, the other cannot change the number of agents."""
    with pytest.raises(ConfigurationError, match="has 4 agents, the experiment has 2"):
        recipe(BASE | fixed, {"optimizer": d5.optimizers.SGD(1)}, **changes).made()


def test_replacing_a_mutable_component_drops_its_leaves() -> None:
    """The leaves of MUTABLE are of MUTABLE's own component, and go with it or with new arguments."""
    mutable = {"optimizer": d5.optimizers.Momentum, "optimizer_args": (0.1, 0.9), "optimizer.momentum": 0.5}
    assert recipe(BASE, mutable).made().optimizer == d5.optimizers.Momentum(0.1, 0.5)
    assert recipe(BASE, mutable, optimizer=d5.optimizers.SGD(0.2)).made().optimizer == d5.optimizers.SGD(0.2)
    assert recipe(BASE, mutable, optimizer_args=(0.3, 0.4)).made().optimizer == d5.optimizers.Momentum(
        0.3, 0.4
    )
    by_leaf = recipe(BASE, mutable, optimizer="SGD", optimizer__learning_rate=0.7)
    assert by_leaf.made().optimizer == d5.optimizers.SGD(0.7)


# -- the hash ---------------------------------------------------------------------------------------------

RATES = st.floats(1e-6, 10, allow_nan=False)
MOMENTA = st.floats(0, 0.99)


def spellings(rate: float, momentum: float) -> list[dict[str, Any]]:
    """All ways to fix the same momentum rule."""
    return [
        {"optimizer": d5.optimizers.Momentum(rate, momentum)},
        {"optimizer": d5.optimizers.Momentum, "optimizer_args": (rate, momentum)},
        {
            "optimizer": d5.optimizers.Momentum,
            "optimizer_args": [rate],
            "optimizer_kwargs": {"momentum": momentum},
        },
        {"optimizer": "momentum", "optimizer_kwargs": {"momentum": momentum, "learning_rate": rate}},
        {"optimizer": f"Momentum({rate!r}, momentum={momentum!r})"},
        {"optimizer": "Momentum", "optimizer.learning_rate": rate, "optimizer.momentum": momentum},
    ]


@pytest.mark.full
@given(RATES, MOMENTA, RATES, MOMENTA)
@tuned(max_examples=40, deadline=None)
def test_every_spelling_of_one_meaning_has_one_hash(r1: float, m1: float, r2: float, m2: float) -> None:
    """Class and arguments, text, instance, leaves; and another meaning has another hash in every spelling."""
    first = {recipe(BASE | way).hash for way in spellings(r1, m1)}
    second = {recipe(BASE | way).hash for way in spellings(r2, m2)}
    assert len(first) == len(second) == 1
    assert (first == second) == ((r1, m1) == (r2, m2))
    descriptions = {recipe(BASE | way).described()["fixed"] for way in spellings(r1, m1)}
    assert len(descriptions) == 1


def test_what_says_nothing_does_not_count() -> None:
    """Empty arguments, and a class without arguments for its instance."""
    plain = recipe(BASE | {"train_sampler": d5.samplers.ShuffleSampler})
    slow = d5.faults.Slowdown(agent=1, factor=4)
    for same in (
        {"train_sampler": d5.samplers.ShuffleSampler(), "model_kwargs": {}},
        {"train_sampler": "shufflesampler", "train_sampler_args": ()},
    ):
        assert recipe(BASE | same).hash == plain.hash
    assert recipe(BASE | {"slow": slow}).hash == recipe(BASE | {"slow": (slow,)}).hash
    assert plain.hash != recipe(BASE).hash != recipe(BASE | {"dataset_kwargs": {"split_seed": 0}}).hash
