"""Shapes of inputs as people write them: 64x128,128x256, with a type where it is another, 64x128,64:int64"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from d5ray.errors import ConfigurationError
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

EXAMPLE: Final = "64x128,128x256"
MOST_ELEMENTS: Final = 1 << 40


def inputs_of(text: str, dtype: str, option: str = "--shapes") -> tuple[TensorDescriptor, ...]:
    """The descriptors of the inputs of a call. option: by which they were given, for errors.

    >>> inputs_of("64x128,64:int64", "float32")
    (float32 (64, 128), int64 (64,))
    """
    return tuple(_input(f"{option} {text!r}", each, dtype) for each in text.split(","))


def shape_of(text: str) -> tuple[int, ...]:
    """The sizes of one tensor, as --shape has them.

    >>> shape_of("3x224x224")
    (3, 224, 224)
    """
    return inputs_of(text.partition(",")[0], "float32", "--shape")[0].sizes


def written(inputs: tuple[TensorDescriptor, ...], dtype: str) -> str:
    """The inputs as `inputs_of` reads them, with the sign for "times" between sizes.

    >>> written(inputs_of("64x128,64:int64", "float32"), "float32")
    '64×128,64:int64'
    """
    return ",".join(
        "×".join(map(str, each.sizes)) + ("" if each.dtype.name == dtype else f":{each.dtype.name}")
        for each in inputs
    )


def _input(given: str, one: str, dtype: str) -> TensorDescriptor:
    sizes, colon, kind = one.strip().partition(":")
    parts = sizes.lower().replace("×", "x").split("x")
    if not all(part.isdecimal() and part.isascii() and int(part) > 0 for part in parts):
        raise ConfigurationError(
            f"{given} has {one.strip()!r}, which is no shape: give one such as {EXAMPLE}, sizes "
            "with x between them and inputs with commas"
        )
    elements = math.prod(int(part) for part in parts)
    if elements > MOST_ELEMENTS:
        raise ConfigurationError(f"{given} has an input of {elements} elements: give a smaller one")
    made: Any = TensorDescriptor(kind if colon else dtype, [int(part) for part in parts])
    return TensorDescriptor(made.dtype, made.sizes)


@contextmanager
def in_memory(what: str, give: str = "smaller sizes") -> Iterator[None]:
    """Raise `ConfigurationError` for what does not fit into the memory, under any framework.

    what: begins the error. give: what would fit.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        text = str(error).lower()
        if isinstance(error, MemoryError) or "allocate memory" in text or "out of memory" in text:
            raise ConfigurationError(f"{what} does not fit into the memory: give {give}") from error
        raise
