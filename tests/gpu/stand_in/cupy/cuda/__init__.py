# mypy: ignore-errors
"""`cupy.cuda`: devices, which each thread chooses, and streams, which do in order what is enqueued

STAND_IN_GPUS is how many there are (2), CUDA_VISIBLE_DEVICES which of them a process sees.
"""

import itertools
import os
import queue
import threading
import warnings

from cupy.cuda import nccl, runtime

__all__ = ["Device", "Event", "ExternalStream", "Stream", "get_current_stream", "nccl", "runtime"]
_now = threading.local()  # `device`: the current one's number; `streams`: those entered
_streams = {}
_numbers = itertools.count(1)


class Device:
    """A device by its number among those that the process sees; entered, it is this thread's."""

    def __init__(self, number=None):
        self.id = getattr(_now, "device", 0) if number is None else int(number)

    def use(self):
        _now.device = self.id

    def __enter__(self):
        _now.outer = [*getattr(_now, "outer", []), getattr(_now, "device", 0)]
        self.use()
        return self

    def __exit__(self, *error):
        *_now.outer, _now.device = _now.outer

    def __eq__(self, other):
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self):
        return hash(self.id)

    def __int__(self):
        return self.id

    def __repr__(self):
        return f"<CUDA Device {self.id}>"

    def synchronize(self):
        for stream in list(_streams.values()):
            stream.synchronize()


class Event:
    """It has happened when what its stream was given before it is done."""

    def __init__(self):
        self._happened = threading.Event()

    @property
    def done(self):
        return self._happened.is_set()

    def synchronize(self):
        self._happened.wait()


class Stream:
    """A thread that does in order what is enqueued; the default stream (null) does all at once."""

    def __init__(self, null=False, non_blocking=False, ptds=False):
        self.ptr = 0 if null else next(_numbers)
        self.failed = 0  # the status that the stream has for ever, as after an illegal access
        self._busy, self._work = 0, queue.SimpleQueue()
        self._condition = threading.Condition()
        _streams[self.ptr] = self
        if not null:
            threading.Thread(target=self._run, name=f"stand-in-stream-{self.ptr}", daemon=True).start()

    @classmethod
    def from_external(cls, stream):
        """That of a framework that computes at once, by the protocol of CUDA's streams."""
        _, ptr = stream.__cuda_stream__()
        return _streams.get(ptr) or _null()

    def enqueue(self, work):
        with self._condition:
            self._busy += 1
        self._work.put(work)

    def _run(self):
        while True:
            self._work.get()()
            with self._condition:
                self._busy -= 1
                self._condition.notify_all()

    @property
    def status(self):
        return self.failed or (runtime.NOT_READY if self._busy else 0)

    @property
    def done(self):
        return self.status == 0

    def record(self, event=None):
        event = event or Event()
        if self.ptr == 0:
            event._happened.set()
        else:
            self.enqueue(event._happened.set)
        return event

    def wait_event(self, event):
        if self.ptr == 0:
            event.synchronize()
        else:
            self.enqueue(event.synchronize)

    def synchronize(self):
        with self._condition:
            self._condition.wait_for(lambda: not self._busy)
        runtime.check_status(self.failed)

    def launch_host_func(self, callback, arg):
        """Call it when what the stream was given before is done."""
        if self.ptr == 0:
            callback(arg)
        else:
            self.enqueue(lambda: callback(arg))

    def __enter__(self):
        _now.streams = [*getattr(_now, "streams", []), self]
        return self

    def __exit__(self, *error):
        _now.streams.pop()


class ExternalStream(Stream):
    def __init__(self, ptr, device_id=-1):
        warnings.warn("ExternalStream is deprecated: use Stream.from_external", DeprecationWarning, 2)
        self.ptr, self.failed, self._busy, self._condition = 0, 0, 0, threading.Condition()


def _null():
    return _streams.get(0) or Stream(null=True)


def get_current_stream(device_id=-1):
    return (getattr(_now, "streams", None) or [_null()])[-1]


def is_available():
    return runtime.getDeviceCount() > 0


def visible():
    """The numbers of the machine's devices that this process sees."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return list(range(int(os.environ.get("STAND_IN_GPUS", "2"))))
    return [int(each) for each in chosen.split(",") if each.strip()]
