"""Claims about measuring the network: two real agents, a prediction in every run that follows"""

from collections.abc import Iterator

import numpy as np
import pyarrow.compute as pc
import pytest

import d5ray as d5
from d5ray.actors.cluster.network_probe import measure_network
from d5ray.dashboards.terminal import doctor
from d5ray.distributed import network_cost
from d5ray.distributed.communicators.point_to_point import collectives


@pytest.fixture(scope="module", autouse=True)
def ray_ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A home of its own: what is measured here predicts no other test's runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("D5RAY_HOME", str(tmp_path_factory.mktemp("measured")))
        yield
    d5.shutdown()


@pytest.mark.slow
def test_a_measured_network_predicts_the_exchange_of_later_runs() -> None:
    """`predicted_exchange_time` is α · rounds + β · bytes of every step of every agent; the doctor tells."""
    found = {network.backend: network for network in measure_network(None)}
    assert set(found) == {"shared_memory", "socket"}
    for network in found.values():
        assert 0 < network.latency_seconds + 1e6 * network.seconds_per_byte < 1.0
        assert network_cost.known(network.hosts)[network.backend] == network
    experiment = d5.Experiment(
        model="lenet", dataset="digits", optimizer=d5.optimizers.SGD(0.05), cpus_per_agent=0.25,
        communicator="socket",
        evaluate=False,
    )  # fmt: skip
    with d5.launch(experiment, quiet=True) as group:
        group.train(5, progress=False)
        samples = group.metrics()
        payload = group.built.parameter_bytes
    predicted = samples.filter(pc.equal(samples["metric"], "predicted_exchange_time"))["value"].to_numpy()
    sockets = found["socket"]
    rounds = collectives.doubling_rounds(2) if collectives.doubling_is_faster(2, payload) else 2
    np.testing.assert_allclose(predicted, sockets.predict(rounds, payload), rtol=1e-12)
    assert len(predicted) == 10
    topics = [line.topic for line in doctor.network(None)]
    assert topics == ["network, shared_memory", "network, socket"]
