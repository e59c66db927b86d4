"""The kinds of frames between agents and shards, and the bound on what a shard keeps"""

BEGIN, OPERATE, LEAVE, COMPRESS, KEPT, FETCH, KEEP = 10, 11, 12, 13, 14, 15, 16  # kinds of requests
ANSWER = 20
# a shard's log, as its copy gets it
STATE, PUSH, PULL, PUSH_PULL, ENTERED, LEFT, INSTALLED = 30, 31, 32, 33, 34, 35, 36
COPIED = 40
NOTHING = -1  # no place in shared memory
PURPOSE = "server"
COPY_PURPOSE = "copy of a shard"


def kept_bytes(size: int) -> int:
    """The most bytes of what a shard with parameters of this size keeps: with a base optimizer's state."""
    return 2**26 + 256 * size
