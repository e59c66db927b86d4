"""A stream file that is being written, read on from where the last look ended"""

from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from d5ray.errors import StorageError

PIECE_BYTES = 2**26  # that are read at once


class Growing:
    """The batches of a stream file of a run, each given once; a file that is not there yet has none.

    files: where the path is, by default on this machine.
    """

    def __init__(self, path: Path | str, schema: pa.Schema, files: fs.FileSystem | None = None) -> None:
        self._path, self._schema = str(path), schema
        self._files = files or fs.LocalFileSystem()
        self._header = b""
        self._offset = 0  # after the last complete batch
        self._piece = PIECE_BYTES

    @property
    def offset(self) -> int:
        """The bytes up to the end of the last batch that was given, or of the header."""
        return self._offset

    def read(self) -> list[pa.RecordBatch]:
        """The batches that are complete and new, about `PIECE_BYTES` at most; [] when there are no more.

        Raises `StorageError` for a stream whose columns are not those of this version.
        """
        try:
            with self._files.open_input_file(self._path) as file:
                return self._read(file)
        except FileNotFoundError:
            return []

    def _read(self, file: pa.NativeFile) -> list[pa.RecordBatch]:
        if not self._header and not self._begun():
            return []
        while True:
            file.seek(self._offset)
            piece = file.read(self._piece)
            batches, taken = self._complete(piece)
            self._offset += taken
            if batches or len(piece) < self._piece:
                return batches
            self._piece *= 2  # one batch that is larger than that

    def _begun(self) -> bool:
        """True if the file has its header, which is kept."""
        with self._files.open_input_file(self._path) as source:
            try:
                found = pa.ipc.open_stream(source).schema
            except (pa.ArrowInvalid, OSError):
                return False  # not yet, or cut off in the middle of it
            self._offset = source.tell()
            source.seek(0)
            self._header = source.read(self._offset)
        missing = [name for name in self._schema.names if name not in found.names]
        if missing:
            raise StorageError(
                f"{self._path} has no {', '.join(missing)}: it was written by another version of d5ray; look "
                "at the run with that one"
            )
        return True

    def _complete(self, piece: bytes) -> tuple[list[pa.RecordBatch], int]:
        """The batches that are whole, and the bytes that they take."""
        source = pa.BufferReader(self._header + piece)
        reader = pa.ipc.open_stream(source)
        batches, end = [], len(self._header)
        try:
            while True:
                batches.append(reader.read_next_batch().select(self._schema.names))
                end = source.tell()
        except (StopIteration, pa.ArrowInvalid, OSError):
            return batches, end - len(self._header)
