"""Trees of arrays: a sample's or a batch's inputs are an array, or dictionaries and tuples of them"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Tree = Any  # an array, or a dictionary or a tuple of trees
Leaves = list[tuple[str, Any]]  # where each stands in the tree, such as "['ids']", and what it is


def is_inner(tree: Tree) -> bool:
    """True for a dictionary, and for a tuple of anything but plain numbers, which is a shape."""
    if isinstance(tree, Mapping):
        return True
    return isinstance(tree, tuple) and bool(tree) and not any(np.isscalar(each) for each in tree)


def leaves(tree: Tree, place: str = "") -> Leaves:
    """The leaves in their order, that of a dictionary's keys and of a tuple's items.

    >>> [place for place, _ in leaves({"ids": (np.zeros(2), np.zeros(3))})]
    ["['ids'][0]", "['ids'][1]"]
    """
    if not is_inner(tree):
        return [(place, tree)]
    items = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
    return [leaf for key, each in items for leaf in leaves(each, f"{place}[{key!r}]")]


def mapped(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """A tree of the same form, with the function's values of the leaves, side by side of several trees.

    >>> mapped(lambda a, b: a + b, {"x": 1, "y": {"z": 2}}, {"x": 10, "y": {"z": 20}})
    {'x': 11, 'y': {'z': 22}}
    """
    if isinstance(tree, Mapping):
        return {key: mapped(function, each, *(other[key] for other in others)) for key, each in tree.items()}
    if is_inner(tree):
        return tuple(mapped(function, *each) for each in zip(tree, *others, strict=True))
    return function(tree, *others)


def form_of(tree: Tree) -> str:
    """The keys and places of a tree without its leaves, for comparing and for people.

    >>> form_of({"ids": np.zeros(2), "mask": np.zeros(2)})
    "['ids'], ['mask']"
    """
    return ", ".join(place for place, _ in leaves(tree))
