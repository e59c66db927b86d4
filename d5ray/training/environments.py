"""Environments of gymnasium: made by name, and what is known of one before anybody acts in it"""

from typing import TYPE_CHECKING, Any

from d5ray.errors import ConfigurationError, first_line

if TYPE_CHECKING:
    from gymnasium import Env


def environment(name: str) -> "Env[Any, Any]":
    """An environment whose observations are arrays and whose actions are numbered; the caller closes it.

    Raises `ConfigurationError` where there is none of this name, it is of another kind, or gymnasium lacks.
    """
    try:
        import gymnasium  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError(
            "environments come from gymnasium, which is not installed: pip install 'd5ray[rl]'"
        ) from error
    try:
        made = gymnasium.make(name)
    except (gymnasium.error.Error, ImportError, TypeError, AttributeError) as error:
        raise ConfigurationError(
            f"gymnasium cannot make the environment {name!r}: {first_line(error)}"
        ) from error
    spaces = gymnasium.spaces
    if not isinstance(made.action_space, spaces.Discrete) or made.action_space.start != 0:
        found = f"the actions {made.action_space}, expected Discrete(n)"
    elif not isinstance(made.observation_space, spaces.Box):
        found = f"the observations {made.observation_space}, expected a Box"
    else:
        return made
    made.close()
    raise ConfigurationError(f"the environment {name!r} has {found}: choose another, such as 'CartPole-v1'")
