# mypy: ignore-errors
"""`cupy.cuda.nccl`: grouped, stream-ordered exchange between processes, over sockets of this machine

As NCCL's own, the process that makes the unique id meets the others: the id has its port. An operation hangs
until the communicator is aborted where a member is gone, and `check_async_error` says so. The first
collective (unless NCCL_RUNTIME_CONNECT is 0) and the first message between two wait within the launch until
the others launch theirs; `late` counts these.
"""

import contextlib
import json
import os
import socket
import socketserver
import struct
import threading
from collections import defaultdict

import ml_dtypes
import numpy as np

import cupy
from cupy import cuda

available = True
NCCL_INT8, NCCL_UINT8, NCCL_INT32, NCCL_UINT32, NCCL_INT64, NCCL_UINT64 = range(6)
NCCL_FLOAT16, NCCL_FLOAT32, NCCL_FLOAT64, NCCL_BFLOAT16 = range(6, 10)
NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN, NCCL_AVG = range(5)
TYPES = (
    np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, np.float16, np.float32, np.float64,
    ml_dtypes.bfloat16,
)  # fmt: skip
REDUCED = {
    NCCL_SUM: np.add,
    NCCL_AVG: np.add,
    NCCL_PROD: np.multiply,
    NCCL_MAX: np.maximum,
    NCCL_MIN: np.minimum,
}
ID_BYTES = 128
_grouped = threading.local()
_meetings = {}  # of the ids that this process has made
late = [0]  # connections made within launches


class NcclError(RuntimeError):
    """An error of NCCL."""


def get_version():
    return 23003


def get_unique_id():
    """128 bytes, which the members of one communicator use once."""
    meeting = _Meeting()
    identity = json.dumps([meeting.port, os.urandom(8).hex()]).encode().ljust(ID_BYTES, b" ")
    _meetings[identity] = meeting
    return identity


def groupStart():
    _grouped.depth = getattr(_grouped, "depth", 0) + 1
    _grouped.waiting = getattr(_grouped, "waiting", [])


def groupEnd():
    _grouped.depth -= 1
    if _grouped.depth == 0:
        by_stream = defaultdict(list)
        for communicator, stream, operation in _grouped.waiting:
            by_stream[communicator, stream].append(operation)
        _grouped.waiting = []
        for (communicator, stream), operations in by_stream.items():
            communicator._enqueue(stream, operations)


class NcclCommunicator:
    """One member of a communicator, on the device that is current."""

    def __init__(self, ndev, commId, rank, config=None):
        if not isinstance(commId, bytes):
            raise TypeError(
                f"Argument 'commId' has incorrect type (expected bytes, got {type(commId).__name__})"
            )
        port, _ = json.loads(commId)
        self._size, self._rank, self._calls = ndev, rank, 0
        self._messages = defaultdict(int)
        self._error, self._aborted = "", threading.Event()
        self._device = cuda.Device().id
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._connecting = socket.create_connection(("127.0.0.1", port))  # by launches, beside the stream
        self._connected = set()  # peers by way, and None for what collectives need
        if os.environ.get("NCCL_RUNTIME_CONNECT") == "0":
            self._connected.add(None)
        host = os.environ.get("NCCL_HOSTID", "host")
        where = f"{host} {cuda.visible()[self._device]}".encode()
        devices = self._together("begin", where)
        if len(set(devices)) < ndev and os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") != "1":
            self.abort()
            raise NcclError(
                "NCCL_ERROR_INVALID_USAGE: invalid usage (Duplicate GPU detected: set "
                "NCCL_MULTI_RANK_GPU_ENABLE=1)"
            )

    def allReduce(self, sendbuf, recvbuf, count, datatype, op, stream):
        self._call(stream, ("allReduce", sendbuf, recvbuf, count, datatype, op, -1))

    def reduce(self, sendbuf, recvbuf, count, datatype, op, root, stream):
        self._call(stream, ("reduce", sendbuf, recvbuf, count, datatype, op, root))

    def broadcast(self, sendbuff, recvbuff, count, datatype, root, stream):
        self._call(stream, ("broadcast", sendbuff, recvbuff, count, datatype, 0, root))

    def allGather(self, sendbuf, recvbuf, count, datatype, stream):
        self._call(stream, ("allGather", sendbuf, recvbuf, count, datatype, 0, -1))

    def reduceScatter(self, sendbuf, recvbuf, recvcount, datatype, op, stream):
        self._call(stream, ("reduceScatter", sendbuf, recvbuf, recvcount, datatype, op, -1))

    def send(self, sendbuf, count, datatype, peer, stream):
        self._call(stream, ("send", sendbuf, sendbuf, count, datatype, 0, peer))

    def recv(self, recvbuf, count, datatype, peer, stream):
        self._call(stream, ("recv", recvbuf, recvbuf, count, datatype, 0, peer))

    def check_async_error(self):
        if self._error:
            raise NcclError("NCCL_ERROR_REMOTE_ERROR: remote process exited or there was a network error")

    def abort(self):
        self._aborted.set()
        for connection in (self._connecting, self._socket):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # which ends what waits for it
            connection.close()

    def destroy(self):
        """Leave in order, which takes nothing from those that have not done all yet."""
        with contextlib.suppress(OSError):
            for connection in (self._connecting, self._socket):
                _sent(connection, ["leave"], [b""])
        self.abort()

    def size(self):
        return self._size

    def rank_id(self):
        return self._rank

    def device_id(self):
        return self._device

    # -- what its stream does --------------------------------------------------------------------------

    def _call(self, stream, operation):
        if self._aborted.is_set():
            raise NcclError("NCCL_ERROR_INVALID_USAGE: invalid usage (the communicator was aborted)")
        for pointer in operation[1:3]:
            if cupy.device_at(pointer) not in (None, self._device):
                raise NcclError(
                    "NCCL_ERROR_INVALID_ARGUMENT: memory of another device than the communicator's"
                )
        if getattr(_grouped, "depth", 0):
            _grouped.waiting.append((self, stream, operation))
        else:
            self._enqueue(stream, [operation])

    def _enqueue(self, stream, operations):
        try:
            self._connect(operations)
        except OSError as error:
            raise NcclError(f"NCCL_ERROR_REMOTE_ERROR: {error or type(error).__name__}") from error
        cuda._streams[stream].enqueue(lambda: self._work(operations))

    def _connect(self, operations):
        """Meet those that are needed for the first time, who must launch as well."""
        ways = {(kind, peer) if kind in ("send", "recv") else None for kind, *_, peer in operations}
        new = ways - self._connected
        self._connected |= new
        late[0] += len(new)
        if None in new:
            _asked(self._connecting, ["all", "connect", "", self._rank, self._size], b"")
        for kind, peer in new - {None}:
            _asked(self._connecting, ["put", self._rank, peer, kind], b"")
        for kind, peer in new - {None}:
            other = "recv" if kind == "send" else "send"
            _asked(self._connecting, ["take", peer, self._rank, other], b"")

    def _work(self, operations):
        try:
            for kind, buffer, _, count, datatype, _, peer in operations:  # sends wait for nobody
                if kind == "send":
                    self._put(peer, _memory(buffer, count, datatype).tobytes())
            for operation in operations:
                if operation[0] == "recv":
                    _memory(*operation[2:5])[...] = self._taken(operation[6], operation[3], operation[4])
                elif operation[0] != "send":
                    self._collective(*operation)
        except (OSError, ValueError) as error:
            self._error = str(error) or type(error).__name__
            self._aborted.wait()  # as a kernel hangs

    def _collective(self, kind, source, target, count, datatype, op, root):
        mine = _memory(source, count * (self._size if kind == "reduceScatter" else 1), datatype)
        gives = kind != "broadcast" or self._rank == root
        given = self._together(f"{kind} {count} {datatype} {op} {root}", mine.tobytes() if gives else b"")
        all_of = [np.frombuffer(each, TYPES[datatype]) for each in given]
        if kind == "broadcast":
            _memory(target, count, datatype)[...] = all_of[root]
        elif kind == "allGather":
            _memory(target, count * self._size, datatype)[...] = np.concatenate(all_of)
        elif self._rank == root or root == -1:
            total = all_of[0].copy()
            for each in all_of[1:]:
                total = REDUCED[op](total, each)
            if op == NCCL_AVG:
                total = total / self._size
            mine = (
                slice(self._rank * count, (self._rank + 1) * count)
                if kind == "reduceScatter"
                else slice(None)
            )
            _memory(target, count, datatype)[...] = total.astype(TYPES[datatype])[mine]

    def _together(self, what, data):
        """Every member's data, by rank, where all have called the same; NCCL would hang or mix them up."""
        self._calls += 1
        return _asked(self._socket, ["all", self._calls, what, self._rank, self._size], data)

    def _put(self, peer, data):
        self._messages["to", peer] += 1
        _asked(self._socket, ["put", self._rank, peer, self._messages["to", peer]], data)

    def _taken(self, peer, count, datatype):
        self._messages["from", peer] += 1
        (data,) = _asked(self._socket, ["take", peer, self._rank, self._messages["from", peer]], b"")
        return np.frombuffer(data, TYPES[datatype])[:count]


class _Meeting:
    """What the members of one communicator exchange, in the process that has made its id."""

    def __init__(self):
        self._condition, self._given, self._gone = threading.Condition(), defaultdict(dict), False
        meeting = self

        class Member(socketserver.BaseRequestHandler):
            def handle(self):
                try:
                    while True:
                        call, (data,) = _received(self.request)
                        if call == ["leave"]:
                            return
                        _sent(self.request, "", meeting._answer(call, data))
                except OSError:
                    meeting._lose()

        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Member)
        server.daemon_threads = True
        self.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, name="stand-in-nccl", daemon=True).start()

    def _answer(self, call, data):
        kind, *rest = call
        with self._condition:
            if kind == "all":
                number, what, rank, size = rest
                given = self._given["all", number]
                given[rank] = (what, data)
                self._condition.notify_all()
                self._wait(lambda: len(given) == size)
                if len({what for what, _ in given.values()}) > 1:
                    raise OSError("members have called different operations")
                return [given[rank][1] for rank in range(size)]
            given = self._given[tuple(rest)]
            if kind == "put":
                given[0] = data
                self._condition.notify_all()
                return []
            self._wait(lambda: given)
            return [given.pop(0)]

    def _wait(self, condition):
        self._condition.wait_for(lambda: self._gone or condition())
        if self._gone:
            raise OSError("a member is gone")

    def _lose(self):
        with self._condition:
            self._gone = True
            self._condition.notify_all()


def _memory(pointer, count, datatype):
    """The numbers at an address, as a flat array."""
    kind = np.dtype(TYPES[datatype])
    if not count:
        return np.empty(0, kind)
    whole = (np.ctypeslib.ctypes.c_char * (count * kind.itemsize)).from_address(pointer)
    return np.frombuffer(whole, kind)


def _asked(connection, call, data):
    _sent(connection, call, [data])
    return _received(connection)[1]


def _sent(connection, call, parts):
    head = json.dumps([call, [len(part) for part in parts]]).encode()
    connection.sendall(struct.pack("<I", len(head)) + head + b"".join(parts))


def _received(connection):
    (length,) = struct.unpack("<I", _read(connection, 4))
    call, lengths = json.loads(_read(connection, length))
    return call, [_read(connection, each) for each in lengths]


def _read(connection, length):
    found = b""
    while len(found) < length:
        part = connection.recv(length - len(found))
        if not part:
            raise OSError("closed")
        found += part
    return found
