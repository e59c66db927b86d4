"""d5ray without Linux: everything is imported, a simulation and agents over sockets run, refusals say why"""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.patience import patience

IMPORTS = """
    import importlib, pkgutil
    import d5ray

    def modules(package):
        for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            if found.name == "d5ray.__main__":
                continue
            try:
                module = importlib.import_module(found.name)
            except ModuleNotFoundError as error:
                assert error.name in ("cupy", "cupy_backends", "pynvml", "mpi4py"), (found.name, error)
                continue
            yield found.name
            if found.ispkg:
                yield from modules(module)

    print(len(list(modules(d5ray))))
"""
TRAINS = """
    import numpy as np

    import d5ray as d5
    from tests.agents import agents_in_threads
    from tests.together import together

    def experiment(rule, topology):
        return d5.Experiment(
            model="mlp", dataset="digits", optimizer=d5.optimizers.SGD(0.1), distributed=rule, batch_size=16,
            topology=topology, evaluate=False, timeout_seconds=60.0,
        )

    data = d5.datasets.load_dataset("digits")
    for rule in (d5.optimizers.AllreduceSGD, d5.optimizers.DPSGD, d5.optimizers.ASGD, d5.optimizers.ADPSGD):
        ran = experiment(rule, d5.topologies.Ring(4))
        with d5.simulate(ran) as group:
            group.train(steps=4)
            simulated = group.agents[0].flat_parameters()
        assert d5.Run("last").row["status"] == "completed"
        with agents_in_threads(ran, data) as (agents, _):
            outcomes = together(lambda rank: agents[rank].train(4), 4)
            assert all(outcome.completed for outcome in outcomes), outcomes
            found = agents[0].flat_parameters()
        if rule in (d5.optimizers.AllreduceSGD, d5.optimizers.DPSGD):
            np.testing.assert_allclose(found, simulated, atol=1e-5)
        assert np.isfinite(found).all()
        print(rule.__name__)
"""
REFUSALS = """
    from d5ray.dashboards.terminal import doctor
    from d5ray.distributed.communicators.shared_memory.segments import supported

    print(supported())
    for finding in doctor.examine(None):
        print(finding.topic, finding.state, finding.text, finding.advice)
"""


def hidden(code: str, home: Path) -> str:
    """What a program prints for which Linux's own things are hidden."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.without_linux", "-c", textwrap.dedent(code)],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=patience(240), check=False,
        env={"D5RAY_HOME": str(home), "PATH": "/usr/bin:/bin", "HOME": str(home)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.full
def test_every_module_is_imported(tmp_path: Path) -> None:
    """Without fcntl, memfd, /proc and the like; what CuPy and MPI need may lack these alone."""
    assert int(hidden(IMPORTS, tmp_path).split()[-1]) > 900


@pytest.mark.full
def test_simulations_and_agents_over_sockets_train(tmp_path: Path) -> None:
    """In step, in gossip, with a parameter server and with pairs; what the oracle says where there is one."""
    assert hidden(TRAINS, tmp_path).split() == ["AllreduceSGD", "DPSGD", "ASGD", "ADPSGD"]


@pytest.mark.full
def test_refusals_say_that_it_is_linux_they_need(tmp_path: Path) -> None:
    told = hidden(REFUSALS, tmp_path)
    assert "shared memory between agents needs Linux, this is darwin" in told
    assert "shared memory note none, as this is darwin" in told
    assert "--shm-size" not in told
