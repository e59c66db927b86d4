"""The one place that touches NCCL: a communicator on a stream of its own, every wait bounded and watched"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from d5ray.errors import ConfigurationError, D5Error, PeerLost
from d5ray.frameworks.host import flat_on_device

LOOK_SECONDS = 0.05  # between looks at the group's health
SPIN_SECONDS, SLEEP_SECONDS = 1e-4, 2e-5  # a short wait keeps its core, a longer one gives it away
LEAVE_SECONDS = 5.0  # for which a member that leaves in order may wait for others
NOT_READY = 600  # cudaErrorNotReady
Pair = tuple[Any, int]  # a flat device array, and the other member's rank


class NcclGroup:
    """`cupy.cuda.nccl.NcclCommunicator` over flat device arrays of CuPy or PyTorch.

    An operation is enqueued on the group's own stream, after what the array's framework has enqueued, and
    has been done when the method returns. A thread of its own watches it, since launches wait for peers as
    well: healthy() raises when the group has failed; the communicator is then aborted, as it is on an
    asynchronous error and after `timeout_seconds`, which ends what hangs.

    Members are connected when the group is formed. A first launch would wait for the others', and what it
    asks of CUDA may wait for a kernel of another communicator, which waits for a peer (NVIDIA/nccl issue
    195). partners: the members with which this one exchanges messages, and they with it; messages between
    others connect them when they are first launched.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        device: str,
        share_id: Callable[[bytes | None], bytes],
        healthy: Callable[[], None],
        timeout_seconds: float,
        partners: Iterable[int] = (),
    ) -> None:
        self._cupy, self._nccl = available(device)
        os.environ.setdefault("NCCL_RUNTIME_CONNECT", "0")  # collectives connect when the group is formed
        self._healthy = healthy
        self._seconds = timeout_seconds
        self._rank = rank
        self.device = self._cupy.cuda.Device(int(device.partition(":")[2] or 0))
        identity = share_id(self._nccl.get_unique_id() if rank == 0 else None)
        with self.device:
            self._stream = self._cupy.cuda.Stream(non_blocking=True)
        made: list[Any] = []
        errors: list[BaseException] = []

        def make() -> None:
            try:
                with self.device:
                    made.append(self._nccl.NcclCommunicator(size, identity, rank))
            except Exception as error:  # NcclError has no narrower base
                errors.append(error)

        thread = threading.Thread(target=make, name="d5ray-nccl-init", daemon=True)  # it cannot be ended
        thread.start()
        end = time.monotonic() + timeout_seconds
        while thread.is_alive() and time.monotonic() < end:
            thread.join(LOOK_SECONDS)
            self._healthy()
        if errors:
            raise ConfigurationError(f"NCCL cannot form the group on {device}: {errors[0]}") from errors[0]
        if not made:
            raise PeerLost(None, f"NCCL has not formed the group within {timeout_seconds:g} s")
        self._comm: Any = made[0]
        self._failed: D5Error | None = None
        self._begun: dict[int, float] = {}  # by thread, when its operation began
        self._one_launches = threading.Lock()
        threading.Thread(target=self._watch, name="d5ray-nccl-watch", daemon=True).start()
        self._connect([partner for partner in partners if partner != rank])

    def allreduce(self, flat: Any, operation: str) -> None:
        """Reduce flat over all members, in place."""
        self._run(
            flat,
            lambda comm, stream: comm.allReduce(
                pointer(flat), pointer(flat), len(flat), self._type(flat), self._operation(operation), stream
            ),
        )

    def reduce_parts(self, flat: Any, parts: Sequence[slice], operation: str) -> None:
        """Part r of the array ends reduced at rank r, in place; parts may differ in size."""
        kind, reduction = self._type(flat), self._operation(operation)

        def start(comm: Any, stream: int) -> None:
            if (length := _equal(parts)) is not None:
                own = pointer(flat[parts[self._rank]])
                comm.reduceScatter(pointer(flat), own, length, kind, reduction, stream)
                return
            for root, part in enumerate(parts):
                piece = flat[part]
                if len(piece):
                    comm.reduce(pointer(piece), pointer(piece), len(piece), kind, reduction, root, stream)

        self._run(flat, start)

    def gather_parts(self, flat: Any, parts: Sequence[slice]) -> None:
        """Part r of the array is rank r's at all, in place; parts may differ in size."""
        kind = self._type(flat)

        def start(comm: Any, stream: int) -> None:
            if (length := _equal(parts)) is not None:
                comm.allGather(pointer(flat[parts[self._rank]]), pointer(flat), length, kind, stream)
                return
            for root, part in enumerate(parts):
                piece = flat[part]
                if len(piece):
                    comm.broadcast(pointer(piece), pointer(piece), len(piece), kind, root, stream)

        self._run(flat, start)

    def broadcast(self, flat: Any, root: int) -> None:
        """The root's array at all, in place."""
        kind = self._type(flat)
        self._run(
            flat,
            lambda comm, stream: comm.broadcast(pointer(flat), pointer(flat), len(flat), kind, root, stream),
        )

    def exchange(self, like: Any, outgoing: Iterable[Pair], incoming: Iterable[Pair]) -> None:
        """Send and receive arrays, all at once."""

        def start(comm: Any, stream: int) -> None:
            for flat, source in incoming:
                if len(flat):
                    comm.recv(pointer(flat), len(flat), self._type(flat), source, stream)
            for flat, target in outgoing:
                if len(flat):
                    comm.send(pointer(flat), len(flat), self._type(flat), target, stream)

        self._run(like, start)

    def close(self) -> None:
        """Leave: in order, so that others may read on, where all is well; else what runs is ended."""
        comm, self._comm = self._comm, None
        if comm is None:
            return
        if self._failed is None and not self._begun:
            leaving = threading.Thread(target=_destroy, args=(comm,), name="d5ray-nccl-leave", daemon=True)
            leaving.start()
            leaving.join(LEAVE_SECONDS)
            if not leaving.is_alive():
                return
        with suppress(Exception):  # a communicator whose peer is gone
            comm.abort()

    def _connect(self, partners: Sequence[int]) -> None:
        with self.device:
            sent, taken = (self._cupy.zeros(max(1, len(partners)), "uint8") for _ in range(2))
        self.exchange(
            sent,
            [(sent[place : place + 1], partner) for place, partner in enumerate(partners)],
            [(taken[place : place + 1], partner) for place, partner in enumerate(partners)],
        )

    def _run(self, like: Any, start: Callable[[Any, int], None]) -> None:
        me = threading.get_ident()
        self._begun[me] = time.monotonic()
        try:
            with self.device:
                self._launch(like, start)
                self._finish()
        except self._nccl.NcclError as error:
            lost = self._failed or PeerLost(None, f"NCCL: {error}")
            self._fail(lost)
            raise lost from error
        finally:
            del self._begun[me]

    def _launch(self, like: Any, start: Callable[[Any, int], None]) -> None:
        with self._one_launches:
            comm = self._comm
            if comm is None:
                raise self._failed or PeerLost(None, "this member has left the group")
            self._stream.wait_event(_current(self._cupy, _torch_of(like)).record())
            self._nccl.groupStart()
            try:
                start(comm, self._stream.ptr)
            finally:
                self._nccl.groupEnd()

    def _finish(self) -> None:
        """Wait until the stream has done everything. A CUDA error is raised as that, and blames no peer."""
        runtime = self._cupy.cuda.runtime
        begin = time.monotonic()
        while self._failed is None and (status := runtime.streamQuery(self._stream.ptr)):
            if status != NOT_READY:
                raise runtime.CUDARuntimeError(status)
            if time.monotonic() - begin < SPIN_SECONDS:
                os.sched_yield()
            else:
                time.sleep(SLEEP_SECONDS)
        if self._failed is not None:
            raise self._failed

    def _watch(self) -> None:
        """End the operation that runs where its peers are gone, or that lasts too long."""
        while (comm := self._comm) is not None:
            time.sleep(LOOK_SECONDS)
            try:
                begun = min([*self._begun.values()], default=None)
                if begun is None:
                    continue
                self._healthy()
                comm.check_async_error()
                if time.monotonic() - begun > self._seconds:
                    raise PeerLost(None, f"NCCL was not done within {self._seconds:g} s")
            except D5Error as error:
                self._fail(error)
            except Exception as error:  # NcclError has no narrower base
                self._fail(PeerLost(None, f"NCCL: {error}"))

    def _fail(self, error: D5Error) -> None:
        self._failed = error
        self.close()

    def _type(self, flat: Any) -> int:
        name = str(flat.dtype).rpartition(".")[2]
        word = {"bool": "UINT8"}.get(name, name.upper())
        value = getattr(self._nccl, f"NCCL_{word}", None)
        if value is None:
            raise ConfigurationError(
                f"NCCL does not exchange arrays of {name}: convert them, for example to float32 or int32"
            )
        return int(value)

    def _operation(self, operation: str) -> int:
        word = {"mean": "AVG"}.get(operation, operation.upper())
        return int(getattr(self._nccl, f"NCCL_{word}"))


def mark(device: Any) -> list[Any]:
    """Events after what this thread has enqueued on the device so far, under CuPy and PyTorch."""
    with device:
        return [stream.record() for stream in _streams()]


def follow(device: Any, mark: Iterable[Any]) -> None:
    """Use the device in this thread, and let what it enqueues there from now on wait for the mark."""
    device.use()
    for stream in _streams():
        for event in mark:
            stream.wait_event(event)


def _streams() -> list[Any]:
    """This thread's streams: CuPy's and, where it has used the GPU, PyTorch's; most often they are one."""
    cupy, torch = sys.modules["cupy"], sys.modules.get("torch")
    found = [_current(cupy, None)]
    if torch is not None and torch.cuda.is_initialized():
        found.append(_current(cupy, torch))
    return found if found[0].ptr != found[-1].ptr else found[:1]


def _current(cupy: Any, torch: Any) -> Any:
    """The stream on which this thread computes under PyTorch, or CuPy."""
    if torch is None:
        return cupy.cuda.get_current_stream()
    return cupy.cuda.Stream.from_external(_TorchStream(torch.cuda.current_stream(cupy.cuda.Device().id)))


class _TorchStream:
    """PyTorch's stream with the protocol that CuPy asks for, which older PyTorches lack."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream  # lives as long as this

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, int(self._stream.cuda_stream)


def _torch_of(array: Any) -> Any:
    return sys.modules["torch"] if hasattr(array, "data_ptr") else None


def _destroy(comm: Any) -> None:
    with suppress(Exception):  # of a peer that left at once
        comm.destroy()


def _equal(parts: Sequence[slice]) -> int | None:
    """The length of all parts where they are equal and not empty."""
    lengths = {part.stop - part.start for part in parts}
    return lengths.pop() or None if len(lengths) == 1 else None


def available(device: str) -> tuple[Any, Any]:
    """CuPy and its NCCL binding; `ConfigurationError` says what is missing."""
    try:
        import cupy  # noqa: PLC0415 - an extra
        from cupy.cuda import nccl  # noqa: PLC0415
    except ImportError as error:
        raise ConfigurationError(
            "the communicator 'nccl', by which agents on GPUs exchange also under PyTorch, needs CuPy, which "
            f"is not installed ({error}): pip install 'd5ray[cuda]', or train on CPUDevice() with "
            "communicator='shared_memory' or 'socket'"
        ) from error
    if not getattr(nccl, "available", False):
        raise ConfigurationError(
            "the communicator 'nccl' needs NCCL, which CuPy does not find: install PyTorch's build for CUDA, "
            "which brings it along"
        )
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        count, reason = 0, f" ({error})"
    else:
        reason = ""
    if int(device.partition(":")[2] or 0) >= count:
        raise ConfigurationError(
            f"the communicator 'nccl' needs the GPU {device}, this machine has {count}{reason}: choose "
            "communicator='shared_memory' or 'socket'"
        )
    return cupy, nccl


def device_view(array: Any) -> Any:
    """The flat array over the memory of a contiguous device array of CuPy or PyTorch."""
    family = type(array).__module__.partition(".")[0]
    on_gpu = family == "torch" and hasattr(array, "data_ptr") and array.device.type == "cuda"
    if not on_gpu and not (family == "cupy" and hasattr(array, "flags")):
        where = f" on {array.device}" if hasattr(array, "device") else ""
        raise ConfigurationError(
            f"the communicator 'nccl' exchanges arrays of CuPy and PyTorch on a GPU, found a "
            f"{type(array).__name__}{where}: choose communicator='shared_memory' or 'socket'"
        )
    return flat_on_device(array)


def pointer(flat: Any) -> int:
    """The address of a flat device array."""
    return int(flat.data_ptr() if hasattr(flat, "data_ptr") else flat.data.ptr)
