"""Serves the live page until it is interrupted"""

import errno
import html
import logging
import socket
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from d5ray.dashboards.page.guard import Guard
from d5ray.display.console import err
from d5ray.errors import ConfigurationError
from d5ray.metrics.queries.tokens import kept_token, write_private
from d5ray.metrics.record.folders import home

if TYPE_CHECKING:
    from werkzeug.serving import BaseWSGIServer

OPENING = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={address}">\n'


def serve(
    run: str = "last",
    *,
    host: str = "127.0.0.1",
    port: int = 8500,
    token: str | None = None,
    browser: bool = False,
    root: Path | None = None,
) -> None:
    """Serve the page of a run, and of all others in `root` (by default `runs_root()`), until Ctrl-C.

    token: what a browser must know; None: that of `page_token` in the home, a file of mode 600.
    Raises `ConfigurationError` for a run that does not exist, a port that is taken, an address that this
    machine does not have, and where Dash is not installed; `StorageError` for a run that cannot be read.
    """
    made, address = prepared(run, host=host, port=port, token=token, root=root)
    err().print(f"d5ray dashboard  {address}  (Ctrl-C ends it)")
    if browser:
        opening = home() / "page.html"  # a browser's arguments are seen by all users of the machine
        write_private(opening, OPENING.format(address=html.escape(address)))
        webbrowser.open(opening.as_uri())
    try:
        made.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        made.server_close()


def prepared(
    run: str = "last",
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    root: Path | None = None,
) -> "tuple[BaseWSGIServer, str]":
    """The server, which listens, and the address to open; see `serve`. Who calls `serve_forever` ends it."""
    if not host.strip():
        raise ConfigurationError(
            f"host is {host!r}, which would be all of this machine's addresses: give 127.0.0.1 for "
            "this machine alone, 0.0.0.0 for all"
        )
    guard = Guard(host, token or kept_token(home() / "page_token"))
    if find_spec("dash") is None:
        raise ConfigurationError(
            "the live page needs Dash, which is not installed: pip install 'd5ray[dashboard]'"
        )
    from werkzeug.serving import WSGIRequestHandler, make_server  # noqa: PLC0415 - comes with Dash

    from d5ray.dashboards.page.app import made_for  # noqa: PLC0415
    from d5ray.dashboards.page.runs import Runs  # noqa: PLC0415

    runs = Runs(root)
    shown = runs.get(runs.found(run))
    sock = _listening(host, port)
    app = made_for(runs, shown.name)
    guard.watch(app.server, app.csp_hashes())

    class Quiet(WSGIRequestHandler):
        """Says nothing about every request."""

        def log(self, type: str, message: str, *args: object) -> None:
            pass

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    number = int(sock.getsockname()[1])
    made = make_server(host, number, app.server, threaded=True, request_handler=Quiet, fd=sock.detach())
    made.daemon_threads = True  # type: ignore[attr-defined]
    closed = made.server_close

    def close() -> None:
        closed()
        runs.close()

    made.server_close = close  # type: ignore[method-assign]
    shown.warm()
    named = f"[{host}]" if ":" in host else host
    if host in ("0.0.0.0", "::"):
        named = socket.getfqdn()
    return made, f"http://{named}:{number}/?token={quote(guard.token)}"


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; `ConfigurationError` says why that is not possible."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(128)
    except (TypeError, UnicodeError) as error:
        found.close()
        raise ConfigurationError(
            f"--host {host!r} is no address ({error}): give 127.0.0.1, or 0.0.0.0 for all"
        ) from None
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigurationError(
                f"port {port} of {host} is taken, perhaps by another `d5ray dashboard`: look there, or give "
                f"another one, --port {port + 1}, or --port 0 for any that is free"
            ) from None
        if error.errno == errno.EACCES:
            raise ConfigurationError(
                f"port {port} is not for every user: give one from 1024 on, such as --port 8500"
            ) from None
        raise ConfigurationError(
            f"this machine cannot listen on {host!r} ({error.strerror or error}): give one of its own "
            "addresses, 127.0.0.1 for itself alone, 0.0.0.0 for all"
        ) from None
    return found
