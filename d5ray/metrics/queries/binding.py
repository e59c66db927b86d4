"""Addresses that a server listens on: this machine alone, unless another one is named"""

import socket

from d5ray.errors import ConfigurationError

LOOPBACK = "127.0.0.1"


def free_at(bind: str) -> tuple[str, int]:
    """The host and port of PORT or HOST:PORT; raises `ConfigurationError` unless one can listen there."""
    host, _, port = bind.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise ConfigurationError(
            f"the address to serve at is {bind!r}: give PORT, or HOST:PORT; port 0 is any that is free"
        )
    host = host or LOOPBACK
    try:
        socket.create_server((host, int(port))).close()  # gRPC prints what is wrong, and does not say it
    except OSError as error:
        raise not_free(host, int(port), error) from error
    return host, int(port)


def not_free(host: str, port: int, error: Exception) -> ConfigurationError:
    """The error for a port on which one cannot listen."""
    return ConfigurationError(
        f"nothing can be served at {host}:{port} ({error}): give another address or port, or port 0 for any "
        "that is free"
    )
