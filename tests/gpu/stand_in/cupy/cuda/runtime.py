# mypy: ignore-errors
"""`cupy.cuda.runtime`: how many devices there are, and how streams are"""

from cupy import cuda

NOT_READY = 600
WORDS = {100: "cudaErrorNoDevice: no CUDA-capable device is detected",
         700: "cudaErrorIllegalAddress: an illegal memory access was encountered"}  # fmt: skip


class CUDARuntimeError(RuntimeError):
    def __init__(self, status):
        super().__init__(WORDS.get(status, f"cudaError {status}"))
        self.status = status


def check_status(status):
    if status:
        raise CUDARuntimeError(status)


def getDeviceCount():
    count = len(cuda.visible())
    check_status(0 if count else 100)
    return count


def getDeviceProperties(device):
    return {"name": b"Stand-in", "uuid": bytes(15) + bytes([cuda.visible()[device]])}


def streamQuery(ptr):
    return cuda._streams[ptr].status
