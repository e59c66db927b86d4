"""Executors of the pieces of a network that one stage holds, by framework"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from d5ray.errors import ConfigurationError, nearest
from d5ray.frameworks import FRAMEWORKS
from d5ray.networks.executors.runnable import JAX

if TYPE_CHECKING:
    from d5ray.kits.parallel.stages.piece_executor import PieceExecutor


def piece_executor_by_name(name: str) -> "Callable[..., PieceExecutor]":
    """The function that makes the executor of pieces under this framework, its `from_pieces`.

    Raises `ConfigurationError` with the nearest name if there is no such framework.
    """
    check_framework(name)
    made: Callable[..., PieceExecutor] = import_module(f"d5ray.frameworks.{name}").from_pieces
    return made


def check_framework(name: str) -> None:
    """Raise `ConfigurationError` with the nearest name if there is no such framework. Imports none."""
    if name not in FRAMEWORKS:
        raise ConfigurationError(f"there is no framework {name!r}: {nearest(name, FRAMEWORKS)}")


def check_pieces(framework: str) -> None:
    """Raise `ConfigurationError` where a framework runs no pieces of a Network, as agents of a mesh hold."""
    if framework == JAX:
        raise ConfigurationError(
            "executor is 'jax', which runs models of JAX's libraries as a whole, and the agents of a mesh "
            "hold pieces of a Network: leave mesh out, or set executor='torch' or another framework's, with "
            "a network that it can cut"
        )


def from_pieces_in_jax(*_: Any, **__: Any) -> None:
    """Raise `ConfigurationError`: agents of a mesh hold pieces of a Network, which JAX does not run here."""
    check_pieces("jax")
