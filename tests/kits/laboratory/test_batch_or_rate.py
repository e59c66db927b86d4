"""Claims about comparing whole trainings: equal seeds in pairs, and metrics against planted rows"""

import pytest

import d5ray as d5
from d5ray.kits.laboratory.jobs.trainings import Training
from d5ray.recipes import batch_or_rate as recipe
from tests.kits.laboratory.comparing import job_of


def test_both_see_the_same_samples_and_each_round_another_seed() -> None:
    """The experiments differ in rate and batch alone; both of a round have one seed, another each round."""
    made = job_of(recipe, pairs=3, seed=5)
    turns = [(pair, contender) for pair, contender in made.interleaved() if isinstance(contender, Training)]
    found = [(pair, contender.name, contender.experiment(made)) for pair, contender in turns]
    assert [(pair, e.seed) for pair, _, e in found] == [(0, 5), (0, 5), (1, 6), (1, 6), (2, 7), (2, 7)]
    assert [name for _, name, _ in found[:4]] == [*recipe.BOTH, *reversed(recipe.BOTH)]
    first, second = found[0][2], found[1][2]
    assert first.with_values(batch_size=16, optimizer=second.optimizer, name=second.name) == second
    for epoch in range(40):
        rate = recipe.RATE.value(epoch)
        assert isinstance(first.batch_size, d5.Schedule)
        assert first.batch_size.value(epoch) == pytest.approx(16 * 0.05 / rate)
