"""A folder of checkpoints on any file system that pyarrow knows; each appears when it is complete"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import pyarrow as pa
from pyarrow import fs

from d5ray.errors import ConfigurationError, StorageError
from d5ray.metrics.record.tensor_file import Array, checksum

MANIFEST: Final = "checkpoint.json"
_STEP: Final = re.compile(r"step-(\d{8,})")
_PART: Final = ".part"  # the end of a folder's name until it is complete


@final
class CheckpointFolder:
    """The folder of an experiment's checkpoints, each in a folder named by its step.

    path: a local path, or a URI such as s3://bucket/folder. A checkpoint is complete when its manifest is
    there; on a local disk it also has another name until then. Whatever the storage refuses is a
    `StorageError`, and leaves the checkpoints that are complete as they are.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            if "://" in path:
                self._files, self._base = fs.FileSystem.from_uri(path)
            else:
                self._files, self._base = fs.LocalFileSystem(), str(Path(path).expanduser().absolute())
        except (pa.ArrowInvalid, OSError) as error:
            raise ConfigurationError(
                f"{path!r} is no place for checkpoints: {error}; give a folder, or a URI such as "
                "s3://bucket/folder"
            ) from error
        self._local = isinstance(self._files, fs.LocalFileSystem)

    def __repr__(self) -> str:
        return f"CheckpointFolder({self.path!r})"

    @property
    def absolute(self) -> str:
        """The path for processes that work in other folders."""
        return self.path if "://" in self.path else self._base

    # -- reading ---------------------------------------------------------------------------------------

    def steps(self) -> list[int]:
        """The steps of the checkpoints that are complete, ascending."""
        with self._trouble("read", self._base):
            selector = fs.FileSelector(self._base, allow_not_found=True)
            names = [info.base_name for info in self._files.get_file_info(selector)]
        found = [int(match[1]) for name in names if (match := _STEP.fullmatch(name))]
        return sorted(step for step in found if self._is_file(f"{step_name(step)}/{MANIFEST}"))

    def steps_of(self, run_id: str | None) -> list[int]:
        """The steps of the complete checkpoints of a run, ascending; one that cannot be read is no run's."""
        found = []
        for step in self.steps():
            with suppress(StorageError):
                if self.manifest(step).get("run_id") == run_id:
                    found.append(step)
        return found

    def manifest(self, step: int) -> dict[str, Any]:
        """The manifest of a complete checkpoint. Raises `StorageError` if it cannot be read."""
        name = f"{step_name(step)}/{MANIFEST}"
        try:
            found: dict[str, Any] = json.loads(self._read(name).tobytes())
        except ValueError as error:
            raise StorageError(f"{self.path}/{name} is damaged ({error}): take another checkpoint") from error
        return found

    def read(self, step: int, name: str) -> Array:
        """The bytes of a file of a checkpoint, whose size and checksum fit its manifest."""
        expected = self.manifest(step)["files"].get(name)
        shown = f"{self.path}/{step_name(step)}/{name}"
        if expected is None:
            raise StorageError(f"the checkpoint {self.path}/{step_name(step)} has no file {name}")
        data = self._read(f"{step_name(step)}/{name}")
        if len(data) != expected["bytes"] or checksum(data) != expected["crc32"]:
            older = [str(other) for other in self.steps() if other != step]
            advice = f"there are others, of step {', '.join(older)}" if older else "there is no other one"
            raise StorageError(
                f"{shown} is damaged: it has {len(data):,} bytes where {expected['bytes']:,} were written, "
                f"or others than those; {advice}"
            )
        return data

    # -- writing ---------------------------------------------------------------------------------------

    def begin(self, step: int) -> None:
        """Make room for a checkpoint; what an unfinished one of this step has left is removed."""
        place = self._place(step)
        with self._trouble("written", place):
            if self._files.get_file_info(place).type == fs.FileType.Directory:
                self._files.delete_dir(place)
            self._files.create_dir(place, recursive=True)

    def write(
        self, step: int, name: str, pieces: Iterable[memoryview], facts: Mapping[str, Any] | None = None
    ) -> None:
        """Write a file of an unfinished checkpoint, and beside it what it must be, with further facts."""
        place = f"{self._place(step)}/{name}"
        size, crc = 0, 0
        with (
            ThreadPoolExecutor(1) as beside,  # another core sums up a piece while this one writes it
            self._trouble("written", place),
            self._writing(place) as write,
        ):
            for piece in pieces:
                summing = beside.submit(checksum, piece, crc)
                write(piece)
                crc = summing.result()
                size += len(piece)
        self._write_json(f"{place}.json", {"bytes": size, "crc32": crc, **(facts or {})})

    def complete(self, step: int, names: Iterable[str], facts: Mapping[str, Any]) -> None:
        """Declare the checkpoint complete, with these files; one of the same step is replaced."""
        place = self._place(step)
        files = {}
        for name in names:
            beside = f"{place.removeprefix(self._base + '/')}/{name}.json"
            if not self._is_file(beside):
                raise StorageError(
                    f"{place}/{name} cannot be seen from the node of the first agent: give Checkpoint a path "
                    "that all nodes reach, such as a shared folder or s3://bucket/folder"
                )
            files[name] = json.loads(self._read(beside).tobytes())
        self._write_json(f"{place}/{MANIFEST}", {**facts, "step": step, "files": files})
        with self._trouble("written", place):
            for name in files:
                self._files.delete_file(f"{place}/{name}.json")
        if self._local:
            final_place = f"{self._base}/{step_name(step)}"
            with self._trouble("written", final_place):
                if self._files.get_file_info(final_place).type == fs.FileType.Directory:
                    self._files.delete_dir(final_place)
                Path(place).rename(final_place)

    def forget(self, step: int) -> None:
        """Remove a checkpoint: the manifest first, so that a half of it is none."""
        place = f"{self._base}/{step_name(step)}"
        with self._trouble("removed", place):
            self._files.delete_file(f"{place}/{MANIFEST}")
            self._files.delete_dir(place)

    # --------------------------------------------------------------------------------------------------

    def _place(self, step: int) -> str:
        """The folder in which a checkpoint is written: a store of objects cannot rename folders."""
        return f"{self._base}/{step_name(step)}" + (_PART if self._local else "")

    def _is_file(self, name: str) -> bool:
        with self._trouble("read", name):
            return bool(self._files.get_file_info(f"{self._base}/{name}").type == fs.FileType.File)

    def _read(self, name: str) -> Array:
        place = f"{self._base}/{name}"
        with self._trouble("read", place):
            if self._local:
                return np.fromfile(place, dtype=np.uint8)
            with self._files.open_input_file(place) as file:
                return np.frombuffer(file.read(), dtype=np.uint8)

    def _write_json(self, place: str, data: Mapping[str, Any]) -> None:
        with self._trouble("written", place), self._writing(place) as write:
            write(memoryview(json.dumps(data).encode()))

    @contextmanager
    def _writing(self, place: str) -> Iterator[Any]:
        """A function that writes a piece; the file is with the disk when the context is left."""
        if not self._local:
            with self._files.open_output_stream(place) as stream:
                yield stream.write
            return
        with Path(place).open("wb", buffering=0) as file:

            def write(piece: memoryview) -> None:
                done = 0
                while done < len(piece):
                    done += file.write(piece[done:])

            yield write
            os.fsync(file.fileno())

    @contextmanager
    def _trouble(self, what: str, place: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"the checkpoint {place} cannot be {what} ({error.strerror or error}); those that are "
                "complete stay as they are: free some space there, or give Checkpoint another path"
            ) from error


def step_name(step: int) -> str:
    """The name of a checkpoint's folder.

    >>> step_name(1200)
    'step-00001200'
    """
    return f"step-{step:08d}"
