"""The trace event format of Chrome and Perfetto, written event by event: nothing of it is kept in memory

The format: Duca and Sinclair, "Trace Event Format", Google, 2016. Its times are microseconds; here they are
given in ns and written with three decimals, so that none is rounded.
"""

import json
from typing import IO, Any, NamedTuple, final


class Track(NamedTuple):
    """A line of the picture: one thread of one process."""

    process: int
    thread: int


@final
class Trace:
    """Events of one trace; every slice, instant and end of a flow lies on a track that was named before.

    file: text is written to it, and nothing is read back. origin: ns that are shown as 0.
    """

    def __init__(self, file: IO[str], origin: int = 0) -> None:
        self._file, self._origin = file, origin
        self._flows = 0
        self.events = 0
        file.write('{"displayTimeUnit": "ms", "traceEvents": [')

    def process(self, number: int, name: str) -> None:
        """Begin a group of tracks; they stand in the order of their numbers."""
        for what, told in (("process_name", {"name": name}), ("process_sort_index", {"sort_index": number})):
            self._write({"ph": "M", "pid": number, "tid": 0, "name": what, "args": told})

    def track(self, track: Track, name: str) -> None:
        """Begin a line within its process."""
        order = {"sort_index": track.thread}
        for what, told in (("thread_name", {"name": name}), ("thread_sort_index", order)):
            self._write({"ph": "M", "pid": track.process, "tid": track.thread, "name": what, "args": told})

    def slice(self, track: Track, name: str, begin: int, end: int, kind: str, **told: Any) -> None:
        """Draw a slice from `begin` to `end` (ns); those of one track lie within each other or apart."""
        self._event("X", track, name, begin, kind, {"dur": (end - begin) / 1000, "args": told})

    def instant(self, track: Track, name: str, at: int, kind: str, **told: Any) -> None:
        """Something that happened at once."""
        self._event("i", track, name, at, kind, {"s": "p", "args": told})

    def flow(self, name: str, begin: tuple[Track, int], end: tuple[Track, int], kind: str) -> None:
        """An arrow from the slice that is there on one track at one time to one on another."""
        self._flows += 1
        (source, sent), (target, came) = begin, end
        self._event("s", source, name, sent, kind, {"id": self._flows})
        self._event("f", target, name, came, kind, {"id": self._flows, "bp": "e"})

    def close(self, **about: Any) -> None:
        """Complete the document, with what is to be known about it."""
        self._file.write(f'\n], "otherData": {json.dumps(about)}}}\n')

    def _event(self, phase: str, track: Track, name: str, at: int, kind: str, more: dict[str, Any]) -> None:
        place = {"pid": track.process, "tid": track.thread, "ts": (at - self._origin) / 1000}
        self._write({"ph": phase, **place, "cat": kind, "name": name, **more})

    def _write(self, event: dict[str, Any]) -> None:
        text = json.dumps(event, allow_nan=False)
        self._file.write(f"{',' if self.events else ''}\n{text}")
        self.events += 1
