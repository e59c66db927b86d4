"""The kinds of frames between agents and shards, and the bound on what a shard keeps"""

BEGIN, OPERATE, LEAVE, COMPRESS, KEPT, FETCH, KEEP = 10, 11, 12, 13, 14, 15, 16  # kinds of requests
ANSWER = 20
NOTHING = -1  # no place in shared memory
PURPOSE = "server"


def kept_bytes(size: int) -> int:
    """The most bytes of what a shard with parameters of this size keeps: with a base optimizer's state."""
    return 2**26 + 256 * size
