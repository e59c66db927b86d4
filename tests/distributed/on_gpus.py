"""NCCL as a communicator of arrays in host memory, for the claims that all communicators keep"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from d5ray.distributed.communicators.nccl.communicator import NCCL
from d5ray.frameworks.host import host_view


class OnGPUs(NCCL):  # type: ignore[misc]  # its arrays go to the GPU before an operation, and come back behind it
    """Every operation is NCCL's own, on copies that lie on this member's GPU."""

    def _native(self, array: Any) -> Any:
        import cupy  # noqa: PLC0415 - an extra

        host = host_view(array)
        flat = cupy.asarray(host)
        self._lent.append((host, flat))
        return flat

    @property
    def _lent(self) -> list[tuple[Any, Any]]:
        """The arrays of the operation that runs, and their copies."""
        lent: list[tuple[Any, Any]] = vars(self).setdefault("lent", [])
        return lent

    @contextmanager
    def _timed(self) -> Iterator[None]:
        try:
            with super()._timed():
                yield
            for host, flat in self._lent:
                host[...] = flat.get()
        finally:
            self._lent.clear()
