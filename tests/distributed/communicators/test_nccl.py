"""Claims about NCCL: on GPUs it keeps the contract of the others; without one it says what is missing"""

import importlib.util
import multiprocessing
import os
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.distributed.authentication.secret import Secret
from d5ray.distributed.communicators import backends
from d5ray.distributed.group.group import Group, Store
from d5ray.distributed.group.rendezvous import Rendezvous
from d5ray.distributed.topologies.topology import Complete, Ring
from d5ray.errors import ConfigurationError
from d5ray.frameworks.cupy.nccl_group import device_view
from tests.agents import agents_in_threads

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
    with pytest.raises(ConfigurationError, match=f"'nccl' {missing}.*shared_memory"):
        backends.join("nccl", Group("g", 0, 0, 2, Store("127.0.0.1", 1, Secret.new())), Complete(2))


@needs_no_gpu
def test_agents_without_a_gpu_that_name_nccl_end_with_that_error() -> None:
    """On the driver, as one of d5ray's errors; nobody is waited for."""
    experiment = d5.Experiment(
        model="lenet",
        dataset="digits",
        optimizer=d5.optimizers.SGD(0.1),
        communicator="nccl",
        timeout_seconds=20.0,
    )
    with (
        pytest.raises(ConfigurationError, match="'nccl' needs"),
        agents_in_threads(experiment, d5.datasets.load_dataset("digits")),
    ):
        pass


def test_arrays_in_host_memory_are_refused() -> None:
    """With what they are, and the communicators that take them."""
    for array in (np.ones(3), [1.0]):
        with pytest.raises(ConfigurationError, match=f"found a {type(array).__name__}.*'gloo'"):
            device_view(array)


# -- with one --------------------------------------------------------------------------------------------


def member(group: Group, answers: Any) -> None:
    """One of several processes that share a GPU."""
    import cupy  # noqa: PLC0415 - an extra

    try:
        communicator = backends.join("auto", group, Ring(group.size))
        found: dict[str, Any] = {"backend": communicator.backend}
        for elements in (1, 1000, 1_000_003):
            array = cupy.arange(elements, dtype=cupy.float32) + group.rank
            communicator.allreduce(array, "mean")
            found[f"mean {elements}"] = cupy.asnumpy(array)
        array = cupy.full(10, float(group.rank))
        own = communicator.reduce_scatter(array)
        communicator.all_gather(array)
        found["scattered"] = (own.start, cupy.asnumpy(array))
        array = cupy.full(7, float(group.rank))
        communicator.broadcast(array, root=1)
        found["broadcast"] = cupy.asnumpy(array)
        array = cupy.arange(2 * group.size) + 100 * group.rank
        communicator.all_to_all(array)
        found["all to all"] = cupy.asnumpy(array)
        array = cupy.full(5, float(group.rank))
        communicator.neighbor_average(array)
        found["mixed"] = cupy.asnumpy(array)
        communicator.barrier()
        communicator.close()
        answers.send(found)
    except BaseException as error:
        answers.send(repr(error))
        raise


@needs_gpu
@pytest.mark.parametrize("size", [2, 4])
def test_processes_that_share_a_gpu_get_numpys_results(size: int) -> None:
    """Every collective, against NumPy; several ranks on one GPU need NCCL 2.30 or newer."""
    context = multiprocessing.get_context("spawn")
    rendezvous = Rendezvous()
    pipes = [context.Pipe(duplex=False) for _ in range(size)]
    os.environ["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
    groups = [
        Group("gpu", 0, rank, size, rendezvous.address, timeout_seconds=60.0, device="cuda:0")
        for rank in range(size)
    ]
    members = [
        context.Process(target=member, args=(group, pipe[1]), daemon=True)
        for group, pipe in zip(groups, pipes, strict=True)
    ]
    try:
        for process in members:
            process.start()
        weights = Ring(size).weights()
        for rank, (answers, _) in enumerate(pipes):
            assert answers.poll(120), f"rank {rank} says nothing"
            found = answers.recv()
            assert isinstance(found, dict), found
            assert found["backend"] == "nccl"
            for elements in (1, 1000, 1_000_003):
                expected = np.arange(elements, dtype=np.float32) + (size - 1) / 2
                np.testing.assert_allclose(found[f"mean {elements}"], expected, rtol=1e-6)
            start, gathered = found["scattered"]
            assert start == 10 * rank // size
            assert (gathered == size * (size - 1) / 2).all()
            assert (found["broadcast"] == 1.0).all()
            expected = np.concatenate([np.arange(2 * rank, 2 * rank + 2) + 100 * r for r in range(size)])
            assert found["all to all"].tolist() == expected.tolist()
            np.testing.assert_allclose(found["mixed"], (weights @ np.arange(size))[rank], rtol=1e-12)
    finally:
        del os.environ["NCCL_MULTI_RANK_GPU_ENABLE"]
        for process in members:
            process.kill()
            process.join(10)
        rendezvous.close()
