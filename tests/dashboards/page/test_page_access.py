"""Who gets the page, and under which address: without a browser."""

import contextlib
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from http.client import HTTPResponse
from pathlib import Path
from urllib.parse import quote

import pytest
from flask import Flask
from werkzeug.serving import make_server

from d5ray.dashboards.page import server
from d5ray.dashboards.page.guard import COOKIE, client_gone, is_loopback
from d5ray.dashboards.page.runs import Runs, answer
from d5ray.errors import ConfigurationError
from d5ray.metrics.queries.tokens import token_from, write_private
from tests.conftest import python
from tests.dashboards.made_runs import Made, serving
from tests.patience import patience

TOKEN = "a token that is long enough"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one small run, r."""
    folder = tmp_path_factory.mktemp("runs")
    run = Made(folder, "r", steps=3)
    run.write(3)
    run.close()
    return folder


class Staying(urllib.request.HTTPRedirectHandler):
    """Does not follow."""

    def redirect_request(self, *_: object) -> None:
        return None


def get(address: str, **headers: str) -> tuple[int, str, HTTPResponse | urllib.error.HTTPError]:
    """Status, text and answer."""
    request = urllib.request.Request(address, headers=headers)
    try:
        answer = urllib.request.build_opener(Staying).open(request, timeout=patience(10))
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error
    return answer.status, answer.read().decode(), answer


def test_without_the_token_nothing_is_given(root: Path) -> None:
    """The page, its data and its scripts are refused; the token gives a cookie that scripts cannot read."""
    with serving(root, "r", token=TOKEN) as address:
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


def test_there_is_always_a_token(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On loopback too, which other users reach: random, the same each time, in a file of mode 600."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path / "home"))
    tokens = set()
    for host in ("127.0.0.1", "0.0.0.0", "127.0.0.1"):
        with serving(root, "r", host=host) as address:
            tokens.add(address.partition("token=")[2])
            assert get(address.partition("?")[0].replace(socket.getfqdn(), "127.0.0.1"))[0] == 401
    (token,) = tokens
    kept = tmp_path / "home" / "page_token"
    assert kept.read_text() == token and len(token) >= 32
    assert kept.stat().st_mode & 0o777 == 0o600 and kept.parent.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path / "another"))
    with serving(root, "r") as address:
        assert address.partition("token=")[2] != token
    assert [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "example.org")] == [
        True, True, True, False, False,
    ]  # fmt: skip


def test_another_name_for_this_machine_is_refused(root: Path) -> None:
    """A page elsewhere whose name is made to point here gets nothing; headers keep the page to itself."""
    with serving(root, "r", token=TOKEN) as address:
        status, text, _ = get(address.partition("?")[0], Host="attacker.example:80")
        assert status == 421 and "127.0.0.1" in text
        _, _, answer = get(address.partition("?")[0], Cookie=f"{COOKIE}={TOKEN}")
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
    with pytest.raises(ConfigurationError, match=r"cannot listen on '192\.0\.2\.1' .*0\.0\.0\.0 for all"):
        server.prepared("r", host="192.0.2.1", root=root)
    for host in ("", " "):
        with pytest.raises(ConfigurationError, match=r"host is .*, which would be all of this machine's"):
            server.prepared("r", host=host, root=root)
    with pytest.raises(ConfigurationError, match="There is no run 's'"):
        server.prepared("s", root=root)


def test_the_page_opens_no_run_outside_its_folder(root: Path, tmp_path: Path) -> None:
    """By a path, a way up or a name in the working directory; what was named at first is open."""
    other = Made(tmp_path / "elsewhere", "other", steps=3)
    other.write(3)
    other.close()
    runs = Runs(root)
    inside = tmp_path / "elsewhere"
    with contextlib.chdir(inside):
        for name in (str(inside / "other"), "other", f"../{inside.name}/other", "..", ".", "", "/", "last"):
            with pytest.raises(ConfigurationError, match="There is no run"):
                runs.get(name)
    assert runs.get("r").name == "r"
    assert runs.found(str(inside / "other")) == "other" and runs.get("other").name == "other"
    runs.close()


def test_a_query_ends_when_its_client_has_gone(root: Path) -> None:
    """Within seconds, though it may take twenty; one whose client waits gives its answer."""
    runs = Runs(root)
    endless = "select count(*) from range(100000000) a, range(100000) b where a.range * b.range % 7 = 3"
    begin = time.monotonic()
    found, told = answer(runs.get("r"), endless, gone=lambda: time.monotonic() > begin + 0.5)
    assert found is None and "interrupted" in told
    assert time.monotonic() - begin < 10
    found, _ = answer(runs.get("r"), "select 1 as one", gone=lambda: False)
    assert found is not None and found.to_pylist() == [{"one": 1}]
    runs.close()


def test_a_closed_connection_is_a_client_that_has_gone(root: Path) -> None:
    """The page's own server sees it: what is asked by a browser that was closed does not go on."""
    seen: list[bool] = []
    ended = threading.Event()
    application = Flask(__name__)

    @application.route("/")
    def page() -> str:
        gone = client_gone()
        seen.append(gone())
        until = time.monotonic() + 10
        while not gone() and time.monotonic() < until:
            time.sleep(0.01)
        seen.append(gone())
        ended.set()
        return ""

    made = make_server("127.0.0.1", 0, application, threaded=True)
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    try:
        with socket.create_connection(("127.0.0.1", made.server_port), timeout=5) as browser:
            browser.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            deadline = time.monotonic() + 10
            while not seen and time.monotonic() < deadline:
                time.sleep(0.01)
        assert ended.wait(15) and seen == [False, True]
    finally:
        made.shutdown()
        made.server_close()
        thread.join(5)


STRANGER = """
import os, socket, sys
home, port = sys.argv[1], int(sys.argv[2])
"".encode("idna")
os.setuid(65534)
for name in ("page_token", "runs", "."):
    try:
        print(open(f"{home}/{name}").read() if name == "page_token" else os.listdir(f"{home}/{name}"))
    except OSError as error:
        print(type(error).__name__)
for path in ("/", "/_dash-layout", "/?run=r&token=guess"):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n".encode())
        print(connection.recv(100).split()[1].decode())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's process is started by root")
def test_another_user_of_the_machine_sees_nothing_of_the_page(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reaches the port and knows the home's name: the token, the runs and the page are not for it."""
    for above in (tmp_path, *tmp_path.parents[:3]):  # the test's own folders, opened for once
        above.chmod(above.stat().st_mode | 0o055)
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path / "home"))
    with serving(root, "r") as address:
        port = address.partition("?")[0].rstrip("/").rpartition(":")[2]
        done = python("-c", STRANGER, tmp_path / "home", port)
    assert done.out.split() == ["PermissionError"] * 3 + ["401"] * 3, done


# -- tokens ------------------------------------------------------------------------------------------------


def test_tokens_come_from_private_files_and_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As text and as flight.json; a file that others may read, and one without a long token, are refused."""
    monkeypatch.delenv("D5RAY_TOKEN", raising=False)
    assert token_from(None) is None
    monkeypatch.setenv("D5RAY_TOKEN", "from the variable")
    assert token_from(None) == "from the variable"
    file = tmp_path / "token"
    for text in ("words enough\n", '{"location": "x", "token": "words enough"}'):
        write_private(file, text)
        assert file.stat().st_mode & 0o777 == 0o600 and token_from(file) == "words enough"
    file.chmod(0o640)
    with pytest.raises(ConfigurationError, match=r"read by others \(mode 640.*chmod 600"):
        token_from(file)
    for text, words in (("abc", "has 3 characters"), ('{"location": 1}', "JSON without a token")):
        write_private(file, text)
        with pytest.raises(ConfigurationError, match=words):
            token_from(file)
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(ConfigurationError, match="no token can be read from"):
            token_from(missing)


def test_a_browser_is_opened_without_the_token_in_its_arguments(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets a file of mode 600, which leads to the page."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("werkzeug.serving.BaseWSGIServer.serve_forever", lambda made: None)
    server.serve("r", port=0, token=TOKEN, root=root, browser=True)
    file = tmp_path / "page.html"
    assert opened == [file.as_uri()] and file.stat().st_mode & 0o777 == 0o600
    assert quote(TOKEN) in file.read_text()
