"""The event that lets agents act: what they play in an environment takes the place of the data set's batch"""

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt

from d5ray.checks import check_count, check_number
from d5ray.errors import ConfigurationError
from d5ray.kits.workloads.datasets.environment import make_environment
from d5ray.kits.workloads.metrics.qualities import RETURN
from d5ray.networks.executors.executor import Executor
from d5ray.training.events.event import Event
from d5ray.training.events.moment import Moment

Floats = npt.NDArray[np.float32]
EPISODE_RETURN = "episode_return"


@dataclass(frozen=True)
class Played:
    """T steps in each of W environments; what came after the last one is worth `ahead`.

    worth: V of the state before each step; left: V of the state that an episode which was cut short by its
    time limit ended in, else 0; over: whether the episode ended with the step.
    """

    observations: Floats  # (T, W, ...)
    actions: npt.NDArray[np.int64]  # (T, W)
    rewards: Floats  # (T, W)
    worth: Floats  # (T, W)
    left: Floats  # (T, W)
    over: npt.NDArray[np.bool_]  # (T, W)
    ahead: Floats  # (W,)

    def advantages(self, discount: float, decay: float) -> Floats:
        """A_t = Σ_k (γλ)^k δ_{t+k} within the episode,  δ_t = r_t + γ V_{t+1} − V_t   (arXiv:1506.02438)."""
        found, following, later = np.empty_like(self.worth), self.ahead, np.zeros_like(self.ahead)
        for t in reversed(range(len(found))):
            going = ~self.over[t]
            delta = self.rewards[t] + discount * (following * going + self.left[t]) - self.worth[t]
            later = delta + discount * decay * later * going
            found[t], following = later, self.worth[t]
        return found


@final
class Play(Event):
    """Every step an agent plays as many steps of an environment as its batch has samples, to train on them.

    It acts by the policy that its copy of the network gives now, and puts observations (n, ...) and targets
    (n, 3) in the place of the batch: actions, advantages (generalized, arXiv:1506.02438; over their standard
    deviation where that is above 1, so that large ones do no harm and noise stays small) and returns, for
    `ActorCriticLoss`. Which optimizer exchanges the gradients is for the experiment to say: with `ASGD` this
    is asynchronous advantage actor-critic (A3C, arXiv:1602.01783), with `AllreduceSGD` it is A2C. The data
    set is `environment`.

    After every epoch, and at the end, an agent plays test episodes by the likeliest action: `test_return`,
    the mean, for `TestReturn`. In training every step in which episodes end records the mean of their returns
    as `episode_return`. What is drawn follows from the run's seed and the agent's rank; a run that goes on
    from a checkpoint begins its episodes anew.

    name: of the environment, in gymnasium. worlds: environments side by side on an agent; they divide the
    batch size. discount: γ. decay: λ. episodes: of a test.
    """

    records = (RETURN, EPISODE_RETURN)

    def __init__(
        self,
        name: str = "CartPole-v1",
        worlds: int = 8,
        discount: float = 0.99,
        decay: float = 0.95,
        episodes: int = 20,
    ) -> None:
        check_count("worlds", worlds)
        check_count("episodes", episodes)
        for label, value in (("discount", discount), ("decay", decay)):
            check_number(label, value, low=0.0, low_included=True, high=1.0 + 1e-12)
        self.name = name
        self.worlds = worlds
        self.discount = discount
        self.decay = decay
        self.episodes = episodes
        self._environments = Environments(name, worlds)

    def check(self, experiment: Any) -> None:
        size = experiment.step_batch_size
        if isinstance(size, int) and size % self.worlds:
            raise ConfigurationError(
                f"{self!r} plays {self.worlds} environments side by side, which do not divide the batch size "
                f"{size}: take {size - size % self.worlds or self.worlds}, or as many worlds as divide it"
            )
        if experiment.loss.classifies:
            raise ConfigurationError(
                f"{self!r} makes actions, advantages and returns, which {experiment.loss!r} does not take: "
                "set loss=ActorCriticLoss()"
            )

    def before_run(self, moment: Moment) -> None:
        if not hasattr(self, "_rng"):
            self._rng = np.random.default_rng([moment.seed, moment.rank, 0x0B])
        if not self._environments.is_open:  # also after a checkpoint, which keeps the generator alone
            self._environments.open(int(self._rng.integers(2**31)))

    def after_sampling(self, moment: Moment) -> None:
        assert moment.batch is not None
        size = len(moment.batch.labels)
        if not size:
            return
        played, ended = self._environments.play(moment.executor, -(-size // self.worlds), self._rng)
        advantages = played.advantages(self.discount, self.decay)
        targets = np.stack([played.actions, _bounded(advantages), advantages + played.worth], axis=-1)
        inputs = played.observations.reshape(-1, *played.observations.shape[2:])[:size]
        labels = targets.reshape(-1, 3)[:size].astype(np.float32)
        moment.batch = replace(moment.batch, inputs=inputs, labels=labels)
        if ended:
            moment.record(EPISODE_RETURN, float(np.mean(ended)), phase="train")

    def after_epoch(self, moment: Moment) -> None:
        self._test(moment)

    def after_run(self, moment: Moment) -> None:
        if moment.completed:
            self._test(moment)

    def _test(self, moment: Moment) -> None:
        """Play the same episodes at every test, begun by seeds of this agent's own."""
        seed = int(np.random.default_rng([moment.seed, moment.rank, 0x7E57]).integers(2**31))
        environments = Environments(self.name, self.episodes)
        environments.open(seed)
        found = environments.returns(moment.executor)
        moment.record(RETURN, float(found.mean()), phase="test", step=moment.step - 1)


@final
@dataclass
class Environments:
    """Environments of one name side by side; open, each is in an episode."""

    name: str
    worlds: int

    @property
    def is_open(self) -> bool:
        """True once the environments are made, until they are closed."""
        return hasattr(self, "_worlds")

    def open(self, seed: int) -> None:
        """Make the environments, and begin an episode in each; seed: of the first one."""
        self._worlds = [make_environment(self.name) for _ in range(self.worlds)]
        self._seen = np.stack([each.reset(seed=seed + place)[0] for place, each in enumerate(self._worlds)])
        self._return = np.zeros(self.worlds)

    def play(self, executor: Executor, steps: int, rng: np.random.Generator) -> tuple[Played, list[float]]:
        """Play this many steps in each by the policy's draws; gives the returns of ended episodes too."""
        count = len(self._worlds)
        observations = np.empty((steps, *self._seen.shape), np.float32)
        actions, over = np.empty((steps, count), np.int64), np.zeros((steps, count), bool)
        rewards, worth, left = (np.zeros((steps, count), np.float32) for _ in range(3))
        ended: list[float] = []
        for t in range(steps):
            observations[t] = self._seen
            outputs = executor.inference(observations[t])
            worth[t] = outputs[:, -1]
            chance = rng.gumbel(size=(count, outputs.shape[1] - 1))
            actions[t] = (outputs[:, :-1] + chance).argmax(axis=1)
            cut = []
            for place, each in enumerate(self._worlds):
                seen, reward, terminated, truncated, _ = each.step(int(actions[t, place]))
                rewards[t, place] = reward
                self._return[place] += float(reward)
                if terminated or truncated:
                    over[t, place] = True
                    ended.append(float(self._return[place]))
                    self._return[place] = 0.0
                    if truncated and not terminated:
                        cut.append((place, seen))
                    seen, _ = each.reset()
                self._seen[place] = seen
            if cut:
                at, last = zip(*cut, strict=True)
                left[t, list(at)] = executor.inference(np.stack(last).astype(np.float32))[:, -1]
        ahead = executor.inference(self._seen.astype(np.float32))[:, -1]
        return Played(observations, actions, rewards, worth, left, over, ahead), ended

    def returns(self, executor: Executor) -> npt.NDArray[np.float64]:
        """(W,): of one episode in each, by the likeliest actions; the environments are closed."""
        going = np.ones(len(self._worlds), bool)
        while going.any():
            outputs = executor.inference(self._seen.astype(np.float32))
            for place in np.flatnonzero(going):
                action = int(outputs[place, :-1].argmax())
                self._seen[place], reward, terminated, truncated, _ = self._worlds[place].step(action)
                self._return[place] += float(reward)
                going[place] = not (terminated or truncated)
        for each in self._worlds:
            each.close()
        return self._return


def _bounded(values: Floats) -> Floats:
    """The values scaled to a standard deviation of 1 at most."""
    bounded: Floats = values / np.maximum(values.std(), np.float32(1))
    return bounded
