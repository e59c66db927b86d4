"""A file of a process's own for what waits: it has no name, so that it is gone with the process"""

import tempfile
from pathlib import Path
from typing import IO, Any, Final, final

from d5ray.errors import DiskFull
from d5ray.metrics.record.files import storing

MOST_BYTES: Final = 1 << 30  # of the file


@final
class Spill:
    """Pieces of bytes in a file in the temporary folder, which is made when the first piece comes.

    The file is nowhere in a folder (`tempfile.TemporaryFile`), so that nothing is left of it, however the
    process ends. It goes, too, when its last piece has been forgotten.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._file: IO[bytes] | None = None
        self._end = self._pieces = 0

    def put(self, data: Any) -> int:
        """Keep a piece; gives its place. Raises `DiskFull`, and then keeps nothing of it."""
        folder = Path(tempfile.gettempdir())
        if self._end + len(data) > self._most_bytes:
            raise DiskFull(
                f"the rows that wait in {folder} fill the {self._most_bytes >> 20} MiB that they may have"
            )
        with storing(folder):
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (open while something waits)
            self._file.seek(self._end)
            written = 0
            while written < len(data):
                written += self._file.write(data[written:])
        place = self._end
        self._end += len(data)
        self._pieces += 1
        return place

    def get(self, place: int, size: int) -> bytes:
        """The piece that was put there."""
        assert self._file is not None
        self._file.seek(place)
        return self._file.read(size)

    def forget(self) -> None:
        """Take notice that one piece is not needed any more."""
        self._pieces -= 1
        if not self._pieces and self._file is not None:
            self.close()

    def close(self) -> None:
        """Let go of the file, and of all that is in it. Harmless twice."""
        file, self._file = self._file, None
        self._end = self._pieces = 0
        if file is not None:
            file.close()
