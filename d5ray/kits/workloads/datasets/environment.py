"""An environment as a data set: that many steps of it an epoch, whose samples the agents make by acting"""

from typing import TYPE_CHECKING, Any

import numpy as np

from d5ray.checks import check_count
from d5ray.errors import ConfigurationError, first_line
from d5ray.training.datasets.dataset import Dataset, Split

if TYPE_CHECKING:
    from gymnasium import Env


def load_environment(*, environment: str = "CartPole-v1", steps: int = 10_000) -> Dataset:
    """The shape of an environment's observations, its actions as classes, and `steps` blank samples.

    What agents train on they make: the event `Play` puts what was played in the place of each batch, a step
    of the environment for a sample. There is no test split: test episodes are played by `Play`.

    Args:
        environment: the name of one of gymnasium with numbered actions, such as "CartPole-v1".
        steps: of the environment in an epoch, of all agents together.

    Raises:
        ConfigurationError: no such environment, gymnasium is not installed, or steps makes no sense.
    """
    check_count("steps", steps)
    made = make_environment(environment)
    actions, shape = int(made.action_space.n), made.observation_space.shape  # type: ignore[attr-defined]
    made.close()
    if shape is None:
        raise ConfigurationError(
            f"the environment {environment!r} has observations without a shape: they must be arrays of one"
        )
    train, test = (
        Split(np.zeros((count, *shape), np.float32), np.zeros(count, np.int64)) for count in (steps, 0)
    )
    return Dataset(environment, train, test, tuple(map(str, range(actions))))


def make_environment(name: str) -> "Env[Any, Any]":
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
