"""Claims about NCCL: on GPUs it keeps the contract of the others; without one it says what is missing"""

import importlib.util
from functools import partial

import numpy as np
import pytest

import d5ray as d5
from d5ray.distributed.communicators import backends
from d5ray.distributed.group.group import Group, Store
from d5ray.distributed.topologies.topology import Complete
from d5ray.distributed.wire.secret import Secret
from d5ray.errors import ConfigurationError
from d5ray.frameworks.cupy.nccl_group import device_view
from tests.gpu.check import exchanged
from tests.gpu.group import together
from tests.patience import patience

CUPY = importlib.util.find_spec("cupy") is not None


def gpus() -> int:
    """How many this machine has."""
    if not CUPY:
        return 0
    import cupy  # noqa: PLC0415 - an extra

    try:
        return int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return 0


needs_no_gpu = pytest.mark.skipif(gpus() > 0, reason="this machine has a GPU")
needs_gpu = pytest.mark.skipif(gpus() == 0, reason="this machine has no GPU, or CuPy is not installed")


# -- without a GPU ---------------------------------------------------------------------------------------


@needs_no_gpu
def test_what_is_missing_is_said_before_anything_is_waited_for() -> None:
    """CuPy, NCCL or the device, and what to take instead; no store is asked."""
    missing = "needs the GPU cuda:0" if CUPY else "needs CuPy, which is not installed"
    with pytest.raises(ConfigurationError, match=f"'nccl'.* {missing}.*shared_memory"):
        backends.join("nccl", Group("g", 0, 0, 2, Store("127.0.0.1", 1, Secret.new())), Complete(2))


@needs_no_gpu
def test_agents_without_a_gpu_that_name_nccl_end_with_that_error() -> None:
    """On the driver, as one of d5ray's errors; nobody is waited for."""
    from tests.agents import agents_in_threads  # noqa: PLC0415 - imports Ray, which a machine may lack

    experiment = d5.Experiment(
        model="lenet",
        dataset="digits",
        optimizer=d5.optimizers.SGD(0.1),
        communicator="nccl",
        timeout_seconds=20.0,
    )
    with (
        pytest.raises(ConfigurationError, match=r"'nccl'.* needs"),
        agents_in_threads(experiment, d5.datasets.load_dataset("digits")),
    ):
        pass


def test_arrays_in_host_memory_are_refused() -> None:
    """With what they are, and the communicators that take them."""
    for array in (np.ones(3), [1.0]):
        with pytest.raises(ConfigurationError, match=f"found a {type(array).__name__}.*'socket'"):
            device_view(array)


# -- with one --------------------------------------------------------------------------------------------


@needs_gpu
@pytest.mark.parametrize("size", [2, 4])
def test_processes_on_gpus_get_numpys_results(size: int) -> None:
    """Every collective, against NumPy; they share a GPU where there are too few, with any version of NCCL."""
    found = together(size, partial(exchanged, "cupy"), patience(60))
    assert all(each.get("found") and all(each["found"].values()) for each in found), found
