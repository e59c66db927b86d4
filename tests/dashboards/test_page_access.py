"""Who gets the page, and under which address: without a browser."""

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from pathlib import Path

import pytest

from d5ray.dashboards.page import server
from d5ray.dashboards.page.guard import COOKIE, is_loopback
from d5ray.errors import ConfigurationError
from tests.dashboards.made_runs import Made

TOKEN = "a token that is long enough"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one small run."""
    folder = tmp_path_factory.mktemp("runs")
    run = Made(folder, "r", steps=3)
    run.write(3)
    run.close()
    return folder


@contextmanager
def serving(root: Path, host: str = "127.0.0.1", token: str | None = None) -> Iterator[str]:
    made, address = server.prepared("r", host=host, token=token, root=root)
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    try:
        yield address
    finally:
        made.shutdown()
        made.server_close()
        thread.join(5.0)


class Staying(urllib.request.HTTPRedirectHandler):
    """Does not follow."""

    def redirect_request(self, *_: object) -> None:
        return None


def get(address: str, **headers: str) -> tuple[int, str, HTTPResponse | urllib.error.HTTPError]:
    """Status, text and answer."""
    request = urllib.request.Request(address, headers=headers)
    try:
        answer = urllib.request.build_opener(Staying).open(request, timeout=10)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error
    return answer.status, answer.read().decode(), answer


def test_without_the_token_nothing_is_given(root: Path) -> None:
    """The page, its data and its scripts are refused; the token gives a cookie that scripts cannot read."""
    with serving(root, token=TOKEN) as address:
        base = address.partition("?")[0]
        for path in (
            "",
            "_dash-layout",
            "_dash-dependencies",
            "assets/page.css",
            "?token=wrong",
            "?token=%C3%A9",
        ):
            status, text, _ = get(base + path)
            assert status == 401 and "d5ray dashboard" in text
        assert get(base, Cookie=f"{COOKIE}=wrong")[0] == 401
        status, _, answer = get(address.replace("token=", "view=data&token=").replace(" ", "%20"))
        cookie = answer.headers["Set-Cookie"]
        assert (status, answer.headers["Location"]) == (302, "/?view=data")
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
        status, text, _ = get(base, Cookie=cookie.partition(";")[0])
        assert status == 200 and "d5ray" in text


def test_beyond_this_machine_there_is_always_a_token(root: Path) -> None:
    """Bound to every address a random token is made, another one each time; on loopback there is none."""
    tokens = set()
    for _ in range(2):
        with serving(root, host="0.0.0.0") as address:
            tokens.add(address.partition("token=")[2])
    assert len(tokens) == 2 and all(len(token) >= 32 for token in tokens)
    with serving(root) as address:
        assert "token" not in address and get(address)[0] == 200
    assert [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "example.org")] == [
        True, True, True, False, False,
    ]  # fmt: skip


def test_another_name_for_this_machine_is_refused(root: Path) -> None:
    """A page elsewhere whose name is made to point here gets nothing; headers keep the page to itself."""
    with serving(root) as address:
        status, text, _ = get(address, Host="attacker.example:80")
        assert status == 421 and "127.0.0.1" in text
        _, _, answer = get(address)
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy and "unsafe-eval" not in policy
        assert "frame-ancestors 'none'" in policy and "http" not in policy


def test_addresses_that_cannot_be_served_say_why(root: Path) -> None:
    """A taken port, an address of another machine, a short token, a run that is none: what to do instead."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"port {port} of 127.0.0.1 is taken.*--port {port + 1}"):
            server.prepared("r", port=port, root=root)
    with pytest.raises(ConfigurationError, match=r"cannot listen on 192\.0\.2\.1 .*0\.0\.0\.0 for all"):
        server.prepared("r", host="192.0.2.1", root=root)
    with pytest.raises(ConfigurationError, match="3 characters: take 8 at least"):
        server.prepared("r", token="abc", root=root)
    with pytest.raises(ConfigurationError, match="There is no run 's'"):
        server.prepared("s", root=root)
