"""Claims about agents that act: advantages by their sum, episodes by gymnasium, what is refused"""

import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.kits.workloads.events.play import Environments, Played
from d5ray.recipes.models import ActorCritic
from d5ray.training.datasets.catalogue import load_dataset


def summed(played: Played, discount: float, decay: float) -> Any:
    """The advantages as the double sum that defines them, world by world."""
    steps, worlds = played.rewards.shape
    found = np.zeros((steps, worlds))
    for world in range(worlds):
        for begin in range(steps):
            for k, t in enumerate(range(begin, steps)):
                over = played.over[t, world]
                following = played.worth[t + 1, world] if t + 1 < steps else played.ahead[world]
                after = played.left[t, world] if over else following
                delta = played.rewards[t, world] + discount * after - played.worth[t, world]
                found[begin, world] += (discount * decay) ** k * delta
                if over:
                    break
    return found


@pytest.mark.parametrize(("discount", "decay"), [(0.99, 0.95), (0.9, 0.0), (1.0, 1.0)])
def test_advantages_are_the_sum_that_defines_them(discount: float, decay: float) -> None:
    """Over ends of episodes, some by a time limit, whose last state is worth something still."""
    rng = np.random.default_rng(7)
    steps, worlds = 12, 5
    over = rng.random((steps, worlds)) < 0.25
    rewards, worth = (rng.standard_normal((steps, worlds)).astype(np.float32) for _ in range(2))
    left = np.where(over & (rng.random((steps, worlds)) < 0.5), rng.standard_normal((steps, worlds)), 0)
    played = Played(
        np.zeros((steps, worlds, 4), np.float32), np.zeros((steps, worlds), np.int64), rewards, worth,
        left.astype(np.float32), over, rng.standard_normal(worlds).astype(np.float32),
    )  # fmt: skip
    np.testing.assert_allclose(
        played.advantages(discount, decay), summed(played, discount, decay), rtol=2e-5, atol=2e-5
    )


class Leaning:
    """An executor whose policy pushes towards where the pole leans; every state is worth 3."""

    def inference(self, inputs: Any) -> Any:
        lean = 100 * (inputs[:, 2] + inputs[:, 3])
        return np.stack([-lean, lean, np.full(len(lean), 3.0)], axis=1).astype(np.float32)


def test_a_stage_plays_gymnasiums_episodes() -> None:
    """The same actions in an environment of one's own give the same observations, rewards and ends."""
    executor: Any = Leaning()
    stage = Environments("CartPole-v1", 3)
    stage.open(seed=11)
    played, ended = stage.play(executor, 700, np.random.default_rng(1))
    for world in range(3):
        own = gymnasium.make("CartPole-v1")
        seen, _ = own.reset(seed=11 + world)
        total, returns = 0.0, []
        for t in range(700):
            np.testing.assert_array_equal(played.observations[t, world], seen)
            seen, reward, terminated, truncated, _ = own.step(int(played.actions[t, world]))
            total += float(reward)
            assert played.rewards[t, world] == reward and played.over[t, world] == (terminated or truncated)
            assert played.left[t, world] == (3.0 if truncated and not terminated else 0.0)
            if terminated or truncated:
                returns.append(total)
                seen, total = own.reset()[0], 0.0
        own.close()
        assert set(returns) <= set(ended)
    assert (played.left > 0).any()  # some came to the time limit of 500


def test_test_episodes_are_played_to_their_end_by_the_likeliest_action() -> None:
    executor: Any = Leaning()
    stage = Environments("CartPole-v1", 4)
    stage.open(seed=2)
    returns = stage.returns(executor)
    own = gymnasium.make("CartPole-v1")
    seen, _ = own.reset(seed=3)
    total, going = 0.0, True
    while going:
        seen, reward, terminated, truncated, _ = own.step(int(seen[2] + seen[3] > 0))
        total, going = total + float(reward), not (terminated or truncated)
    own.close()
    assert returns[1] == total > 100


def experiment(**changes: Any) -> d5.Experiment:
    values: dict[str, Any] = {
        "model": ActorCritic, "model_kwargs": {"observations": 4, "actions": 2, "hidden": 16},
        "dataset": "environment", "dataset_kwargs": {"steps": 512}, "loss": d5.operators.ActorCriticLoss(),
        "optimizer": d5.optimizers.Adam(0.003), "distributed": d5.optimizers.ASGD(), "agents": 2, "epochs": 2,
        "batch_size": 32,
        "events": d5.events.Play(worlds=8, episodes=3), "seed": 1,
    }  # fmt: skip
    return d5.Experiment(**values | changes)


@pytest.mark.full
@pytest.mark.parametrize("distributed", [d5.optimizers.ASGD(), d5.optimizers.AllreduceSGD()], ids=repr)
def test_actors_learn_by_any_optimizer_and_the_same_every_time(distributed: Any, tmp_path: Path) -> None:
    """Agents play other episodes than each other, the same in every run; a step of the world is a sample."""
    values = []
    for _ in range(2):
        with d5.simulate(experiment(distributed=distributed), root=tmp_path) as group:
            group.train(progress=False)
            tables = group.tables()
            parameters = group.agents[0].parameters_sha256()
        rows = d5.metrics.Rows(tables, "test_return", "test")
        losses = d5.metrics.Rows(tables, "loss")
        values.append((parameters, rows.value.tolist(), losses.value.tolist()))
        assert d5.metrics.SamplesSeen().estimate(tables).value == 1024
        assert set(rows.epoch.tolist()) == {0, 1} and (rows.value >= 8).all() and (rows.value <= 500).all()
        own, other = (losses.value[losses.rank == rank] for rank in range(2))
        assert len(own) == len(other) == 16 and not np.intersect1d(own, other).size
        assert len(d5.metrics.Rows(tables, "episode_return", "train"))
        assert d5.metrics.TestReturn().estimate(tables).exact
    assert values[0] == values[1]


def test_a_batch_is_cut_to_its_size(tmp_path: Path) -> None:
    """40 samples an epoch and two agents of 32: the last step has 4 each, of 8 worlds."""
    made = experiment(dataset_kwargs={"steps": 72}, distributed=d5.optimizers.AllreduceSGD(), epochs=1)
    with d5.simulate(made, root=tmp_path) as group:
        group.train(progress=False)
        assert d5.metrics.Rows(group.tables(), "samples").value.tolist() == [32.0, 4.0, 32.0, 4.0]


def test_a_run_goes_on_from_its_checkpoint_with_new_episodes(tmp_path: Path) -> None:
    made = experiment(
        distributed=d5.optimizers.AllreduceSGD(), events=(d5.events.Play(episodes=2), d5.events.Checkpoint())
    )
    with d5.simulate(made, root=tmp_path) as group:
        group.train(epochs=1, progress=False)
        before = group.parameters()
    with d5.simulate(made, root=tmp_path, resume=group.run_id) as resumed:
        for name, value in resumed.parameters().items():
            np.testing.assert_array_equal(value, before[name])
        assert resumed.train(progress=False).step == 16
        assert d5.metrics.Rows(resumed.tables(), "test_return").epoch.tolist() == [1, 1] * 2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: experiment(batch_size=30), r"do not divide the batch size 30: take 24, or as many worlds"),
        (lambda: experiment(loss=d5.operators.SoftmaxCrossEntropyLoss()), r"set loss=ActorCriticLoss\(\)"),
        (lambda: d5.events.Play(discount=1.5), "discount is 1.5"),
        (
            lambda: load_dataset("environment", environment="CartPool-v1"),
            "cannot make the environment 'CartPool-v1'",
        ),
        (
            lambda: load_dataset("environment", environment="Pendulum-v1"),
            r"has the actions Box.*expected Discrete\(n\)",
        ),
    ],
)
def test_what_is_wrong_is_refused(make: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make()


def test_without_gymnasium_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ConfigurationError, match=r"which is not installed: pip install 'd5ray\[rl\]'"):
        load_dataset("environment")
