"""Claims about the numbers of agents that a run may be resized to"""

import pytest

import d5ray as d5
from d5ray.actors.metrics.wishes import check_resize
from d5ray.errors import ConfigurationError


def described(min_agents: int) -> dict[str, object]:
    split = d5.networks.FullyConnectedSplit()
    wanted = d5.Experiment(
        model="mlp", dataset="digits", optimizer=d5.optimizers.SGD(0.1), min_agents=min_agents,
        mesh=d5.Mesh(3, 2, parts=2, split=split),
    )  # fmt: skip
    return wanted.describe() | {"agents": wanted.agents}


@pytest.mark.parametrize(("min_agents", "possible"), [(1, "4, 8, 12"), (5, "8, 12")])
def test_a_mesh_has_whole_replicas_and_an_error_says_how_many(min_agents: int, possible: str) -> None:
    """Every number from min_agents to all is taken, or refused with those that are possible."""
    for agents in range(min_agents, 13):
        if str(agents) in possible.split(", "):
            check_resize(described(min_agents), agents)
            continue
        with pytest.raises(ConfigurationError) as caught:
            check_resize(described(min_agents), agents)
        assert str(caught.value) == (
            f"agents is {agents}, and a replica of the run's mesh is 2 stages × 2 parts = 4 agents, which "
            f"come and go together: take one of {possible}"
        )


def test_beyond_the_experiments_agents_nothing_is_possible() -> None:
    """13 of 12."""
    with pytest.raises(ConfigurationError, match=r"agents is 13: it must be .* 12 at most"):
        check_resize(described(1), 13)
