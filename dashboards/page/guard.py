"""Guard of the page: those see it who know its token, also on this machine, which may have other users"""

import hmac
import ipaddress
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from flask import Flask, Response

COOKIE = "d5ray_token"
FETCHED = (  # nothing of the page comes from elsewhere, and nothing of it goes there
    "default-src 'self'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'"
)
DENIED = (
    "This page of d5ray needs its token: open the address that `d5ray dashboard` has printed, which ends in "
    "?token=…\n"
)
MISLED = "This page of d5ray is on this machine alone: open it as http://127.0.0.1 or http://localhost\n"
PLAIN = {"Content-Type": "text/plain; charset=utf-8"}


@final
class Guard:
    """Lets requests through that carry the token, and keeps it as a cookie that scripts cannot read.

    host: where it listens. On a loopback address the page must be reached under a name of this machine
    itself, so that no other page can make a browser ask for it under a name of its own.
    """

    def __init__(self, host: str, token: str) -> None:
        self.host, self.token = host, token

    def watch(self, server: "Flask", scripts: Sequence[str]) -> None:
        """Look at every request to the server. scripts: the hashes of its inline scripts."""
        policy = FETCHED.format(scripts=" ".join(scripts))
        server.before_request(self._look)

        @server.after_request
        def protect(response: "Response") -> "Response":
            response.headers["Content-Security-Policy"] = policy
            response.headers["X-Content-Type-Options"] = "nosniff"
            response.headers["Referrer-Policy"] = "no-referrer"
            return response

    def _look(self) -> "Response | tuple[str, int, dict[str, str]] | None":
        from flask import make_response, redirect, request  # noqa: PLC0415

        name = request.host if request.host.endswith("]") else request.host.rsplit(":", 1)[0]
        if is_loopback(self.host) and not is_loopback(name.strip("[]")):
            return MISLED, 421, PLAIN
        if _equal(request.cookies.get(COOKIE, ""), self.token):
            return None
        if not _equal(request.args.get("token", ""), self.token):
            return DENIED, 401, PLAIN
        kept = {key: value for key, value in request.args.items() if key != "token"}
        query = "&".join(f"{key}={value}" for key, value in kept.items())
        response = make_response(redirect(request.path + (f"?{query}" if query else "")))
        response.set_cookie(COOKIE, self.token, httponly=True, samesite="Strict")
        return response


def client_gone() -> Callable[[], bool]:
    """A function that says if the client of the request being answered has gone."""
    from flask import request  # noqa: PLC0415

    connection = request.environ.get("werkzeug.socket")

    def gone() -> bool:
        try:
            return connection is not None and connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    return gone


def is_loopback(host: str) -> bool:
    """True if the host names this machine, as only the machine itself reaches it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())
