"""The functions that a model brings along: that they end, and how many nodes they make"""

from collections.abc import Iterable, Iterator, Mapping

import onnx

from d5ray.errors import ConfigurationError

MOST_NODES = 1_000_000  # when all functions are inlined

Key = tuple[str, str, str]  # domain, name, overload


def check_functions(model: onnx.ModelProto, what: str) -> None:
    """Raise `ConfigurationError` where functions call each other in a circle, or make too many nodes.

    Ten functions each of which calls the next ten times are a file of a kilobyte and ten billion nodes.
    """
    functions: dict[Key, onnx.FunctionProto] = {}
    for each in model.functions:
        key = (each.domain, each.name, each.overload)
        if key in functions:
            raise ConfigurationError(f"{what} defines the function {each.name!r} twice")
        functions[key] = each
    counts: dict[Key, int] = {}
    for key in functions:
        _count(key, functions, counts, what)
    total = _total(model.graph.node, counts)
    if total > MOST_NODES:
        raise ConfigurationError(
            f"{what} has {total:,} nodes when its functions are inlined: d5ray takes up to {MOST_NODES:,}"
        )


def _count(
    start: Key, functions: Mapping[Key, onnx.FunctionProto], counts: dict[Key, int], what: str
) -> None:
    """Set how many nodes a function makes, and those that it calls; depth first, without recursion."""
    if start in counts:
        return
    path = {start}
    stack = [(start, _called(start, functions))]
    while stack:
        key, left = stack[-1]
        for other in left:
            if other in path:
                raise ConfigurationError(
                    f"the function {key[1]!r} of {what} calls itself, which ONNX does not allow"
                )
            if other not in counts:
                path.add(other)
                stack.append((other, _called(other, functions)))
                break
        else:
            counts[key] = _total(functions[key].node, counts)
            path.remove(key)
            stack.pop()


def _called(key: Key, functions: Mapping[Key, onnx.FunctionProto]) -> Iterator[Key]:
    """The functions that this one calls, each once."""
    return iter(sorted({_key(node) for node in functions[key].node} & functions.keys()))


def _total(nodes: Iterable[onnx.NodeProto], counts: Mapping[Key, int]) -> int:
    return sum(counts.get(_key(node), 1) for node in nodes)


def _key(node: onnx.NodeProto) -> Key:
    return (node.domain, node.op_type, node.overload)
