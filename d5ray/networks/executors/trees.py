"""Trees of arrays: inputs and labels of a sample or a batch are an array, or dictionaries and tuples of them

Labels that are a tree travel as one structured array (n,), which has a field for each part, so that whatever
takes, cuts, copies or hashes labels does it to all; a loss gets the tree.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

Tree = Any  # an array, or a dictionary or a tuple of trees
Leaves = list[tuple[str, Any]]  # where each stands in the tree, such as "['ids']", and what it is


def is_inner(tree: Tree) -> bool:
    """True for a dictionary, and for a tuple of anything but plain numbers alone, as a shape is."""
    if isinstance(tree, Mapping):
        return True
    return (
        isinstance(tree, tuple) and bool(tree) and not all(each is None or np.isscalar(each) for each in tree)
    )


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


def rows(tree: Tree, at: Any) -> Tree:
    """The row at a place, or those at several or in a slice, of every array."""
    return tree[at] if isinstance(tree, np.ndarray) else mapped(lambda array: array[at], tree)


def form_of(tree: Tree) -> str:
    """The keys and places of a tree without its leaves, for comparing and for people.

    >>> form_of({"ids": np.zeros(2), "mask": np.zeros(2)})
    "['ids'], ['mask']"
    """
    return ", ".join(place for place, _ in leaves(tree))


PLACE: Final = "[{}]"  # a field's name in the structured array of a tuple


def packed_type(kinds: Tree) -> np.dtype[Any]:
    """The type of a structured array of a tree, of the types of its leaves. Raises `TypeError` for its keys.

    >>> packed_type({"box": np.dtype((np.float32, 4)), "class": np.dtype(np.int64)})
    dtype([('box', '<f4', (4,)), ('class', '<i8')])
    """
    if not is_inner(kinds):
        return np.dtype(kinds)
    if not isinstance(kinds, Mapping):
        kinds = {PLACE.format(place): each for place, each in enumerate(kinds)}
    elif not all(isinstance(key, str) and not key.startswith("[") for key in kinds):
        raise TypeError(f"found the keys {list(kinds)}, expected texts that are names")
    return np.dtype([(key, packed_type(each)) for key, each in kinds.items()])


def unpacked(array: Any) -> Tree:
    """The tree of which this is the structured array, as views of its fields; of other arrays the array.

    >>> unpacked(np.zeros(3, packed_type((np.dtype(np.int64), np.dtype((np.float32, 2))))))[1].shape
    (3, 2)
    """
    names = array.dtype.names if isinstance(array, np.ndarray) else None
    if names is None:
        return array
    parts = {name: unpacked(array[name]) for name in names}
    return tuple(parts.values()) if names[0] == PLACE.format(0) else parts


def packed(tree: Tree) -> Any:
    """The arrays (n, ...) of a tree as one structured array (n,); an array stays as it is."""
    if not is_inner(tree):
        return tree
    whole = np.empty(
        len(leaves(tree)[0][1]),
        packed_type(mapped(lambda each: np.dtype((each.dtype, each.shape[1:])), tree)),
    )
    for (_, room), (_, each) in zip(leaves(unpacked(whole)), leaves(tree), strict=True):
        room[...] = each
    return whole
