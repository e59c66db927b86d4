"""Arrays on GPUs, agents, and groups of processes that exchange by NCCL, for the checks of such a machine"""

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

import d5ray as d5
from d5ray.agent.training_agent import TrainingAgent
from d5ray.distributed.communicators import backends
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.rendezvous import Rendezvous

Result = dict[str, Any]
LIBRARIES: Final = ("cupy", "torch")
SHARING: Final = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}  # lets several ranks have one GPU, from this NCCL on:
SINCE: Final = 23000
APART: Final = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}  # before, each has a host of its own


class Nowhere:
    """A sink that keeps nothing."""

    def samples(self, batch: Any) -> None: ...
    def frames(self, batch: Any) -> None: ...
    def events(self, batch: Any) -> None: ...
    def file(self, name: str, data: bytes) -> None: ...
    def drain(self) -> None: ...


def agent_of(wanted: d5.Experiment, rank: int = 0) -> TrainingAgent:
    """An agent of an experiment on arrays, without Ray, that has not joined anybody."""
    made = TrainingAgent(rank, wanted, "check", "node", Nowhere())
    assert isinstance(wanted.dataset, d5.Dataset)
    made.build(wanted.dataset, None)
    return made


# -- arrays of either library ---------------------------------------------------------------------------


def on_gpu(library: str, values: Any) -> Any:
    """These numbers as an array of CuPy, or a tensor of PyTorch, on the current GPU."""
    if library == "cupy":
        import cupy  # noqa: PLC0415 - where it is asked for

        return cupy.asarray(values)
    import torch  # noqa: PLC0415

    return torch.from_numpy(np.ascontiguousarray(values)).cuda()


def on_host(array: Any) -> Any:
    return array.get() if hasattr(array, "get") else array.cpu().numpy()


def usable() -> list[str]:
    """The libraries that see a GPU here."""
    return [library for library in LIBRARIES if _sees(library)]


def _sees(library: str) -> bool:
    try:
        on_gpu(library, np.zeros(1))
    except Exception:
        return False
    return True


# -- groups of processes --------------------------------------------------------------------------------


def use(index: int) -> None:
    """Make this GPU the current one of the thread, for what `on_gpu` makes."""
    for library in usable():
        if library == "cupy":
            import cupy  # noqa: PLC0415 - where it is asked for

            cupy.cuda.Device(index).use()
        else:
            import torch  # noqa: PLC0415

            torch.cuda.set_device(index)


def member(
    group: Group, variables: dict[str, str], body: Callable[[Communicator], Any], answers: Any
) -> None:
    """One process of a group, which says what it found or raised."""
    os.environ.update(variables)
    use(int(group.device.partition(":")[2]))
    begin = time.monotonic()
    try:
        communicator = backends.join("nccl", group, d5.topologies.Ring(group.size))
        joined = time.monotonic() - begin
        answers.send({"joined_seconds": joined, "found": body(communicator)})
        communicator.close()
    except Exception as error:
        answers.send({"error": f"{type(error).__name__}: {error}", "seconds": time.monotonic() - begin})


@contextlib.contextmanager
def processes(
    size: int, body: Callable[[Communicator], Any], timeout: float = 20.0
) -> Iterator[tuple[list[Any], list[Any]]]:
    """The processes of a group, which share GPUs if need be, and the ends of their pipes."""
    import cupy  # noqa: PLC0415

    gpus = cupy.cuda.runtime.getDeviceCount()
    variables: list[dict[str, str]] = [{}] * size
    if gpus < size:
        alone = cupy.cuda.nccl.get_version() < SINCE
        variables = [{"NCCL_HOSTID": f"rank{rank}", **APART} if alone else SHARING for rank in range(size)]
    context, rendezvous = multiprocessing.get_context("spawn"), Rendezvous()
    pipes = [context.Pipe(duplex=False) for _ in range(size)]
    groups = [
        Group(
            "check", 0, rank, size, rendezvous.address, timeout_seconds=timeout, device=f"cuda:{rank % gpus}"
        )
        for rank in range(size)
    ]
    made = [
        context.Process(target=member, args=(groups[rank], variables[rank], body, pipes[rank][1]))
        for rank in range(size)
    ]
    try:
        for each, (_, answering) in zip(made, pipes, strict=True):
            each.start()
            answering.close()  # so that the end of the process is heard
        yield made, [pipe[0] for pipe in pipes]
    finally:
        for each in made:
            if each.is_alive() and each.pid:
                os.kill(each.pid, signal.SIGKILL)
            each.join(5)
        rendezvous.close()


def together(
    size: int, body: Callable[[Communicator], Any], seconds: float = 60.0, timeout: float = 20.0
) -> list[Any]:
    """What the processes of a group find, by rank; `{"error": …}` for one that fails or is silent."""
    with processes(size, body, timeout) as (_, pipes):
        return [answered(pipe, seconds) for pipe in pipes]


def answered(pipe: Any, seconds: float) -> Any:
    try:
        return pipe.recv() if pipe.poll(seconds) else {"error": f"silent for {seconds:g} s"}
    except EOFError:
        return {"error": "its process ended"}
