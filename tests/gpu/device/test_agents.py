"""Claims about agents on GPUs: they train as NumPy does, exchange by NCCL, and say what goes wrong"""

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.distributed.checkpoints.checksum import checksum
from d5ray.distributed.communicators import backends
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.group.group import Group, Store
from d5ray.distributed.group.rendezvous import Rendezvous
from d5ray.distributed.topologies.topology import Complete
from d5ray.errors import AgentError, ConfigurationError, PeerLost
from d5ray.frameworks.arrays.executor import ArrayExecutor
from d5ray.frameworks.host import device_name
from d5ray.training.arrays import like
from tests.agents import agents_in_threads
from tests.distributed.every_optimizer import EVERY
from tests.distributed.regrouped import Regrouped
from tests.together import together

cupy: Any = pytest.importorskip("cupy")
nccl: Any = cupy.cuda.nccl
on_stand_in = pytest.mark.skipif(not hasattr(cupy, "STAND_IN"), reason="it needs the stand-in's faults")


@pytest.fixture(autouse=True)
def ranks_may_share_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")


def experiment(executor: str, method: Any, **changes: Any) -> d5.Experiment:
    values: dict[str, Any] = {
        "model": "lenet", "dataset": "digits", "seed": 1, "batch_size": 16, "executor": executor,
        "distributed": method, "optimizer": d5.optimizers.Momentum(0.05, 0.9), "timeout_seconds": 20.0,
    }  # fmt: skip
    return d5.Experiment.from_values(**values | changes)


def trained(executor: str, method: Any, steps: int = 4, **changes: Any) -> list[np.ndarray[Any, Any]]:
    """The parameters of agents that trained in threads, each on its own samples."""
    wanted = experiment(executor, method, **changes)
    with agents_in_threads(wanted, d5.datasets.load_dataset("digits")) as (made, _):
        for outcome in together(lambda rank: made[rank].train(steps), len(made)):
            assert outcome.completed, outcome.reason
        return [agent.executor.numpy_parameters() for agent in made]


def check_as_numpy(method: Any, **changes: Any) -> None:
    """On the last of several GPUs, which is no thread's current one unless it says so."""
    last = d5.GPUDevice(cupy.cuda.runtime.getDeviceCount() - 1)
    found = trained("cupy", method, executor_kwargs={"device": last}, **changes)
    expected = trained("numpy", method, **changes)
    for own, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {"agents": 1},
        {"agents": 3},
        {"agents": 2, "distributed": d5.optimizers.ParameterServerSGD()},
        {"agents": 2, "distributed": d5.optimizers.ParameterServerSGD(), "servers": d5.Servers(2)},
        {"mesh": d5.Mesh(2, stages=2, micro_batches=2)},
        {"mesh": d5.Mesh(1, stages=2, schedule=d5.pipelines.GPipe(), recompute=True)},
    ],
    ids=["one", "three", "server", "two shards", "replicas in stages", "recomputed"],
)
def test_agents_on_a_gpu_end_with_numpys_parameters(changes: dict[str, Any]) -> None:
    """One alone, by NCCL, by parameter servers, as stages of a pipeline; agents are compared at the end."""
    given = dict(changes)
    check_as_numpy(given.pop("distributed", d5.optimizers.AllreduceSGD()), **given)


@pytest.mark.parametrize("name", EVERY)
def test_every_distributed_optimizer_ends_with_numpys_parameters(name: str) -> None:
    """Or is refused: compressors compute in host memory."""
    entry = EVERY[name]
    changes: dict[str, Any] = {"optimizer": entry.base, "topology": entry.topology}
    if isinstance(entry.rule, d5.optimizers.CompressedSGD | d5.optimizers.ChocoSGD):
        with pytest.raises(ConfigurationError, match="compresses in host memory, the parameters are on"):
            trained("cupy", entry.rule, **changes)
    else:
        check_as_numpy(entry.rule, **changes)


def test_agents_on_gpus_go_on_after_a_death() -> None:
    """A group is formed anew, by another id of NCCL's, and a newcomer takes the others' state."""

    def course(executor: str) -> list[np.ndarray[Any, Any]]:
        wanted = experiment(
            executor, d5.optimizers.AllreduceSGD(), agents=3, on_failure="continue", evaluate=False
        )
        regrouped = Regrouped(wanted)
        try:
            regrouped.join()
            regrouped.train(3)
            for size in (2, 3):
                regrouped.change(size)
                regrouped.train(3)
            return [agent.executor.numpy_parameters() for agent in regrouped.agents]
        finally:
            regrouped.close()

    for found, expected in zip(course("cupy"), course("numpy"), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (d5.optimizers.Hogwild(), "Hogwild lets all agents change one array in host memory"),
        (d5.optimizers.ADPSGD(), "ADPSGD has agents read and write each other's host memory"),
    ],
    ids=["Hogwild", "gossip"],
)
def test_what_exchanges_in_host_memory_is_refused(method: Any, words: str) -> None:
    """Agents on GPUs have no array in common: they would train models of their own in silence."""
    with pytest.raises(ConfigurationError, match=f"{words}, and the parameters lie on cuda:0"):
        trained("cupy", method, agents=2)


@on_stand_in
def test_the_time_of_an_update_is_the_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for: else launches alone are counted, and the next pass's time has the rest."""
    synchronize = cupy.cuda.Stream.synchronize

    def slowly(stream: Any) -> None:
        time.sleep(0.02)
        synchronize(stream)

    wanted = experiment("cupy", d5.optimizers.AllreduceSGD(), agents=1)
    with agents_in_threads(wanted, d5.datasets.load_dataset("digits")) as ((agent,), _):
        agent.train(1)
        before = agent.connections.optimizer.update_ns
        monkeypatch.setattr(cupy.cuda.Stream, "synchronize", slowly)
        agent.train(3)
        assert agent.connections.optimizer.update_ns - before >= 3 * 20e6


@on_stand_in
def test_an_agent_says_which_gpu_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """By UUID: its number is of those that the process sees, and NVML counts all of the node."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,3")
    wanted = experiment(
        "cupy", d5.optimizers.AllreduceSGD(), agents=1, executor_kwargs={"device": d5.GPUDevice(1)}
    )
    with agents_in_threads(wanted, d5.datasets.load_dataset("digits")) as ((agent,), (rows,)):
        agent.train(1)
    (found,) = [str(event) for event in rows.sent_events if "uuid" in str(event)]
    assert "cuda:1" in found and "GPU-00000000-0000-0000-0000-000000000003" in found


def test_an_error_of_cuda_is_told_as_that_when_a_model_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not as samples that the network does not take."""
    error = cupy.cuda.runtime.CUDARuntimeError

    def broken(*arguments: Any) -> Any:
        raise error(700)

    monkeypatch.setattr(ArrayExecutor, "inference", broken)
    with pytest.raises(AgentError, match="cudaErrorIllegalAddress"):
        trained("cupy", d5.optimizers.AllreduceSGD(), agents=1)


def test_values_of_the_host_become_an_array_beside_another() -> None:
    found = like(cupy.zeros(3, cupy.float32), np.array([1.0, 2.0, 3.0]))
    assert found.dtype == np.float32 and cupy.asnumpy(found).tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "uint8"])
def test_a_checksum_is_that_of_the_same_bytes_in_host_memory(kind: str) -> None:
    values = (np.random.default_rng(0).random(10_003) * 100).astype(kind)
    assert checksum(cupy.asarray(values)) == checksum(values)


def test_an_array_knows_its_gpu_by_its_number() -> None:
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("this machine has one GPU")
    with cupy.cuda.Device(1):
        assert device_name(cupy.zeros(1)) == "cuda:1"
    assert device_name(np.zeros(1)) == "cpu"


# -- a group of threads ----------------------------------------------------------------------------------


def groups(size: int, function: Callable[[Communicator], Any], seconds: float = 20.0) -> list[Any]:
    """What members in threads find, each with a communicator over NCCL."""
    rendezvous = Rendezvous()
    try:

        def member(rank: int) -> Any:
            store: Store = rendezvous.address
            group = Group("gpu", 0, rank, size, store, timeout_seconds=seconds, device="cuda:0")
            communicator = backends.join("nccl", group, Complete(size))
            try:
                return function(communicator)
            finally:
                communicator.close()

        return together(member, size)
    finally:
        rendezvous.close()


def test_exchanges_in_the_background_may_come_in_another_order() -> None:
    """One member starts two and calls a third, the other calls it first: each waits for its own alone."""

    def member(communicator: Communicator) -> list[float]:
        first, second = cupy.full(1000, 1.0 + communicator.rank), cupy.full(10, 10.0 * communicator.rank)
        background = communicator.start
        if communicator.rank == 0:
            started = background.allreduce(first)
            time.sleep(0.2)
            communicator.allreduce(second)
        else:
            communicator.allreduce(second)
            started = background.allreduce(first)
        started.wait()
        return [float(first[0]), float(second[0])]

    assert groups(2, member) == [[3.0, 10.0]] * 2


@on_stand_in
def test_peers_are_connected_when_the_group_is_formed() -> None:
    """No launch waits for them later, and asks nothing of CUDA that waits for another's kernel."""

    def member(communicator: Communicator) -> tuple[int, list[float]]:
        background = communicator.start
        communicator.barrier()
        before, array, mean = nccl.late[0], cupy.ones(8), cupy.full(8, float(communicator.rank))
        background.allreduce(array).wait()
        communicator.allreduce(array)
        communicator.neighbor_average(mean)
        communicator.all_to_all(array)
        communicator.barrier()
        return nccl.late[0] - before, [float(array[0]), float(mean[0])]

    assert groups(2, member) == [(0, [4.0, 0.5])] * 2


@on_stand_in
def test_exchanges_follow_what_makes_their_arrays_and_are_followed() -> None:
    """On the caller's own stream, by events: those in the background began on another thread's, too early."""

    def member(communicator: Communicator) -> list[float]:
        def made(array: Any) -> None:
            time.sleep(0.1)
            array.fill(1.0)

        found = []
        for allreduce in (communicator.allreduce, lambda array: communicator.start.allreduce(array).wait()):
            array = cupy.zeros(4)
            with cupy.cuda.Stream(non_blocking=True) as stream:
                stream.launch_host_func(made, array)
                allreduce(array)
            found.append(float(array[0]))
        return found

    assert groups(2, member) == [[2.0, 2.0]] * 2


@on_stand_in
def test_a_thread_goes_on_behind_anothers_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """By CuPy's stream and, without a warning of CuPy's, by PyTorch's where that has used the GPU."""
    import torch  # noqa: PLC0415 - here alone

    asked: list[object] = []

    def current(device: object) -> Any:
        asked.append(device)
        return SimpleNamespace(cuda_stream=0)  # as of PyTorch 2.10, without CuPy's protocol

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_stream", current)

    def member(communicator: Communicator) -> list[str]:
        done: list[str] = []

        def note(what: str) -> None:
            time.sleep(0.1 * (what == "first"))
            done.append(what)

        with cupy.cuda.Stream(non_blocking=True) as first:
            first.launch_host_func(note, "first")
            mark = communicator.mark()
        with cupy.cuda.Stream(non_blocking=True) as second:
            communicator.follow(mark)
            second.launch_host_func(note, "second")
            second.synchronize()
        return done

    assert groups(2, member) == [["first", "second"]] * 2 and set(asked) == {0}


@on_stand_in
def test_a_cuda_error_is_told_as_that_and_at_once() -> None:
    """Not as a peer that is lost, after the time-out."""

    def member(communicator: Communicator) -> str:
        array = cupy.ones(4)
        communicator.allreduce(array)
        communicator._nccl._stream.failed = 700  # type: ignore[attr-defined]
        begin = time.monotonic()
        with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="illegal memory access") as raised:
            communicator.allreduce(array)
        assert time.monotonic() - begin < 5
        return str(raised.value)

    assert len(groups(2, member)) == 2


@on_stand_in
def test_a_group_that_one_cannot_form_nobody_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are in NCCL's own call then, which ends with their processes: they hear why, at once."""
    begin = nccl.NcclCommunicator.__init__

    def failing(self: Any, size: int, identity: bytes, rank: int) -> None:
        if rank == 1:
            raise nccl.NcclError("NCCL_ERROR_SYSTEM_ERROR: unhandled system error")
        begin(self, size, identity, rank)

    monkeypatch.setattr(nccl.NcclCommunicator, "__init__", failing)
    since = time.monotonic()
    with pytest.raises(ConfigurationError, match="NCCL cannot form the group"):
        groups(3, lambda communicator: communicator.rank)
    assert time.monotonic() - since < 10


@on_stand_in
@pytest.mark.parametrize("where", ["launch", "groupEnd"])
def test_a_launch_that_fails_or_hangs_is_a_lost_peer(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are made within a launch: what fails there is no error of the agent's, and is bounded."""
    hang, over = threading.Event(), threading.Event()

    def failing(*arguments: Any) -> None:
        raise nccl.NcclError("NCCL_ERROR_SYSTEM_ERROR: unhandled system error")

    def hanging() -> None:
        hang.wait(60)
        raise nccl.NcclError("NCCL_ERROR_REMOTE_ERROR: aborted")

    abort = nccl.NcclCommunicator.abort

    def aborting(self: Any) -> None:
        hang.set()
        abort(self)

    def member(communicator: Communicator) -> str:
        array = cupy.ones(4)
        communicator.allreduce(array)
        communicator.barrier()
        if communicator.rank == 0:
            with monkeypatch.context() as patch:
                if where == "launch":
                    patch.setattr(nccl.NcclCommunicator, "allReduce", failing)
                else:
                    patch.setattr(nccl, "groupEnd", hanging)
                    patch.setattr(nccl.NcclCommunicator, "abort", aborting)
                try:
                    with pytest.raises(PeerLost, match="NCCL") as raised:
                        communicator.allreduce(array)
                finally:
                    over.set()
                return str(raised.value)
        over.wait(30)  # a peer that has left would be the reason
        return ""

    begin = time.monotonic()
    found = groups(2, member, seconds=2.0)
    assert found[0] and time.monotonic() - begin < 20
