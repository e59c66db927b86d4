"""The one place that touches NCCL: a communicator on a stream of its own, every wait bounded and watched"""

import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from d5ray.errors import ConfigurationError, D5Error, PeerLost

LOOK_SECONDS = 0.001  # between looks at the group's health while an operation runs
Pair = tuple[Any, int]  # a flat device array, and the other member's rank


class NcclGroup:
    """`cupy.cuda.nccl.NcclCommunicator` over flat device arrays of CuPy or PyTorch.

    An operation is enqueued on the group's own stream, after what the array's framework has enqueued, and
    has been done when the method returns. healthy() raises when the group has failed; the communicator is
    then aborted, as it is on an asynchronous error and after `timeout_seconds`. Of NCCL's communicators only
    one is used at a time in a process (NVIDIA/nccl issue 195).
    """

    _one_at_a_time = threading.Lock()

    def __init__(
        self,
        rank: int,
        size: int,
        device: str,
        share_id: Callable[[list[int] | None], list[int]],
        healthy: Callable[[], None],
        timeout_seconds: float,
    ) -> None:
        self._cupy, self._nccl = available(device)
        self._healthy = healthy
        self._seconds = timeout_seconds
        self._device = self._cupy.cuda.Device(int(device.partition(":")[2] or 0))
        identity = share_id(list(self._nccl.get_unique_id()) if rank == 0 else None)
        with self._device:
            self._stream = self._cupy.cuda.Stream(non_blocking=True)
        made: list[Any] = []
        errors: list[BaseException] = []

        def make() -> None:
            try:
                with self._device:
                    made.append(self._nccl.NcclCommunicator(size, tuple(identity), rank))
            except Exception as error:  # NcclError has no narrower base
                errors.append(error)

        thread = threading.Thread(target=make, name="d5ray-nccl-init", daemon=True)  # it cannot be ended
        thread.start()
        thread.join(timeout_seconds)
        if errors:
            raise ConfigurationError(f"NCCL cannot form the group on {device}: {errors[0]}") from errors[0]
        if not made:
            raise PeerLost(None, f"NCCL has not formed the group within {timeout_seconds:g} s")
        self._comm: Any = made[0]

    def allreduce(self, flat: Any, operation: str) -> None:
        """Reduce flat over all members, in place."""
        self._run(
            flat,
            lambda comm, stream: comm.allReduce(
                pointer(flat), pointer(flat), len(flat), self._type(flat), self._operation(operation), stream
            ),
        )

    def reduce_parts(self, flat: Any, parts: Iterable[slice], operation: str) -> None:
        """Part r of the array ends reduced at rank r, in place; parts may differ in size."""

        def start(comm: Any, stream: int) -> None:
            for root, part in enumerate(parts):
                piece = flat[part]
                if len(piece):
                    comm.reduce(
                        pointer(piece), pointer(piece), len(piece), self._type(flat),
                        self._operation(operation), root, stream,
                    )  # fmt: skip

        self._run(flat, start)

    def broadcast_parts(self, flat: Any, parts: Iterable[tuple[slice, int]]) -> None:
        """Broadcast each part from its root, in place."""

        def start(comm: Any, stream: int) -> None:
            for part, root in parts:
                piece = flat[part]
                if len(piece):
                    comm.broadcast(pointer(piece), pointer(piece), len(piece), self._type(flat), root, stream)

        self._run(flat, start)

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
        """End what runs and leave."""
        comm, self._comm = self._comm, None
        if comm is not None:
            with suppress(Exception):  # a communicator whose peer is gone cannot be destroyed in order
                comm.abort()

    def _run(self, like: Any, start: Callable[[Any, int], None]) -> None:
        comm = self._comm
        if comm is None:
            raise PeerLost(None, "this member has left the group")
        with self._one_at_a_time, self._device:
            self._stream.wait_event(self._produced(like))
            self._nccl.groupStart()
            try:
                start(comm, self._stream.ptr)
            finally:
                self._nccl.groupEnd()
            self._finish(comm)

    def _produced(self, like: Any) -> Any:
        """An event after what the array's framework has enqueued so far."""
        cuda = self._cupy.cuda
        if hasattr(like, "data_ptr"):
            import torch  # noqa: PLC0415 - the caller has it

            return cuda.ExternalStream(torch.cuda.current_stream(like.device).cuda_stream).record()
        return cuda.get_current_stream().record()

    def _finish(self, comm: Any) -> None:
        deadline = time.monotonic() + self._seconds
        look = time.monotonic() + LOOK_SECONDS
        while not self._stream.done:
            now = time.monotonic()
            if now > look:
                look = now + LOOK_SECONDS
                try:
                    self._healthy()
                    comm.check_async_error()
                except D5Error:
                    self.close()
                    raise
                except Exception as error:
                    self.close()
                    raise PeerLost(None, f"NCCL: {error}") from error
            if now > deadline:
                self.close()
                raise PeerLost(None, f"NCCL was not done within {self._seconds:g} s")
            os.sched_yield()

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
        return int(getattr(self._nccl, f"NCCL_{operation.upper()}"))


def available(device: str) -> tuple[Any, Any]:
    """CuPy and its NCCL binding; `ConfigurationError` says what is missing."""
    try:
        import cupy  # noqa: PLC0415 - an extra
        from cupy.cuda import nccl  # noqa: PLC0415
    except ImportError as error:
        raise ConfigurationError(
            f"the communicator 'nccl' needs CuPy, which is not installed ({error}): "
            "pip install 'd5ray[cuda]', or choose communicator='shared_memory' or 'gloo'"
        ) from error
    if not getattr(nccl, "available", False):
        raise ConfigurationError(
            "the communicator 'nccl' needs NCCL, which CuPy does not find: pip install nvidia-nccl-cu12"
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
            "communicator='shared_memory' or 'gloo'"
        )
    return cupy, nccl


def device_view(array: Any) -> Any:
    """The flat array over the memory of a contiguous device array of CuPy or PyTorch."""
    family = type(array).__module__.partition(".")[0]
    if family == "torch" and hasattr(array, "data_ptr") and array.device.type == "cuda":
        if array.is_contiguous():
            return array.detach().view(-1)
    elif family == "cupy" and hasattr(array, "flags"):
        if array.flags.c_contiguous:
            return array.reshape(-1)
    else:
        where = f" on {array.device}" if hasattr(array, "device") else ""
        raise ConfigurationError(
            f"the communicator 'nccl' exchanges arrays of CuPy and PyTorch on a GPU, found a "
            f"{type(array).__name__}{where}: choose communicator='shared_memory' or 'gloo'"
        )
    raise ConfigurationError(
        f"an array of shape {tuple(array.shape)} is not contiguous: exchange a contiguous copy and write it "
        "back"
    )


def pointer(flat: Any) -> int:
    """The address of a flat device array."""
    return int(flat.data_ptr() if hasattr(flat, "data_ptr") else flat.data.ptr)
