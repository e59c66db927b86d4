"""The address of a rendezvous as one word, for a test's program that gets it as an argument"""

from d5ray.distributed.group.group import Store
from d5ray.distributed.wire.secret import Secret


def written(store: Store) -> str:
    """As HOST:PORT:SECRET."""
    return f"{store.host}:{store.port}:{store.secret.reveal()}"


def read(word: str) -> Store:
    """What was written."""
    host, port, secret = word.split(":")
    return Store(host, int(port), Secret.parse(secret))
