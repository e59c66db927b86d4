"""Claims about downloads, against a server on the loopback: the whole file or nothing."""

import gzip
import hashlib
import http.server
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from d5ray.errors import DataError
from d5ray.training.datasets import published_files
from d5ray.training.datasets.catalogue import load_dataset
from d5ray.training.datasets.published_files import ADDRESSES, CHECKSUMS

NAMES = list(CHECKSUMS["mnist"])


def mnist_file(name: str) -> bytes:
    """Two images of zeros, or the labels 3 and 4, in the published format, always in the same bytes."""
    if "images" in name:
        return gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 2, 28, 28) + bytes(2 * 28 * 28), mtime=0)
    return gzip.compress(struct.pack(">4BI", 0, 0, 8, 1, 2) + b"\3\4", mtime=0)


class Server(http.server.ThreadingHTTPServer):
    """Serves `files` under /data/, and misbehaves for one file as told."""

    daemon_threads = True
    block_on_close = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {name: mnist_file(name) for name in NAMES}
        self.requested: list[str] = []
        self.cut_off = ""
        self.silent = ""
        self.stop = threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name = self.path.removeprefix("/data/")
        self.server.requested.append(name)
        if name == self.server.silent:
            self.server.stop.wait(10)
            return
        if name not in self.server.files:
            self.send_error(404)
            return
        content = self.server.files[name]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if name == self.server.cut_off else content)

    def log_message(self, format: str, *_args: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A running server that stands in for MNIST's publisher, with checksums to match its files."""
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setitem(ADDRESSES, "mnist", f"http://127.0.0.1:{running.server_port}/data/")
        sums = {name: hashlib.md5(content).hexdigest() for name, content in running.files.items()}
        monkeypatch.setitem(CHECKSUMS, "mnist", sums)
        yield running
        running.stop.set()
        running.shutdown()
        thread.join()


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_missing_files_are_fetched_and_kept(server: Server, tmp_path: Path) -> None:
    """The files on disk are those of the server, nothing else; the second time nothing is requested."""
    data = load_dataset("mnist", root=tmp_path, download=True)
    assert (len(data.train), data.test.labels.tolist()) == (2, [3, 4])
    assert files_in(tmp_path / "mnist") == server.files
    assert sorted(server.requested) == sorted(NAMES)
    load_dataset("mnist", root=tmp_path, download=True)
    load_dataset("mnist", root=tmp_path)
    assert len(server.requested) == len(NAMES)


def test_only_what_is_missing_is_fetched(server: Server, tmp_path: Path) -> None:
    """Files that are there, packed or not, are not fetched again."""
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / NAMES[0]).write_bytes(server.files[NAMES[0]])
    (tmp_path / "mnist" / NAMES[1].removesuffix(".gz")).write_bytes(gzip.decompress(server.files[NAMES[1]]))
    load_dataset("mnist", root=tmp_path, download=True)
    assert server.requested == NAMES[2:]


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        ("not found", "HTTP Error 404"),
        ("other content", "found 5 bytes with MD5 5d41402abc4b2a76b9719d911017c592, expected"),
        ("cut off", r"cut off after \d+ of \d+ bytes"),
        ("silence", "imed out"),
        ("no server", "refused"),
    ],
)
def test_a_failed_download_leaves_nothing_behind(
    failure: str, message: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever fails, the error names the file's address, the reason and the remedy; no part of it stays."""
    last = NAMES[-1]
    if failure == "not found":
        del server.files[last]
    elif failure == "other content":
        server.files[last] = b"hello"
    elif failure == "cut off":
        server.cut_off = last
    elif failure == "silence":
        server.silent = last
        monkeypatch.setattr(published_files, "TIMEOUT_SECONDS", 0.2)
    else:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            monkeypatch.setitem(ADDRESSES, "mnist", f"http://127.0.0.1:{free.getsockname()[1]}/data/")
    with pytest.raises(DataError, match=message) as error:
        load_dataset("mnist", root=tmp_path, download=True)
    first_failing = NAMES[0] if failure == "no server" else last
    assert f"{ADDRESSES['mnist']}{first_failing}" in str(error.value)
    assert "by hand" in str(error.value)
    complete = NAMES[: NAMES.index(first_failing)]
    assert files_in(tmp_path) == {name: mnist_file(name) for name in complete}


def test_without_checksum_other_content_is_kept(server: Server, tmp_path: Path) -> None:
    """With checksum=False a file of the right format is taken although its MD5 is another."""
    server.files[NAMES[3]] = gzip.compress(struct.pack(">4BI", 0, 0, 8, 1, 2) + b"\5\6")
    data = load_dataset("mnist", root=tmp_path, download=True, checksum=False)
    assert data.test.labels.tolist() == [5, 6]


def test_a_folder_that_cannot_be_made_is_an_error(server: Server, tmp_path: Path) -> None:
    """A root that is a file is a DataError that names the folder, not a traceback."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError, match=f"expected {NAMES[0]} in {tmp_path / 'file' / 'mnist'}"):
        load_dataset("mnist", root=tmp_path / "file", download=True)
