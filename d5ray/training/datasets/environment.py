"""An environment as a data set: that many steps of it an epoch, whose samples the agents make by acting"""

import numpy as np

from d5ray.checks import check_count
from d5ray.errors import ConfigurationError
from d5ray.training.datasets.dataset import Dataset, Split
from d5ray.training.environments import environment as make


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
    made = make(environment)
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
