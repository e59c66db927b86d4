"""A small object store that speaks as much of S3 as reading needs: listing, sizes, ranges of bytes"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

Objects = dict[str, bytes]  # by bucket/key


@contextmanager
def object_store(objects: Objects) -> Iterator[str]:
    """Serve these objects on loopback; gives host:port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
            if not key:
                asked = parse_qs(parts.query)
                self._send(
                    200,
                    _listing(objects, bucket, asked.get("prefix", [""])[0], asked.get("delimiter", [""])[0]),
                )
                return
            data = objects.get(f"{bucket}/{key}")
            if data is None:
                self._send(404, b"<Error><Code>NoSuchKey</Code></Error>")
                return
            begin, end = 0, len(data)
            wanted = self.headers.get("Range")
            if wanted:
                low, _, high = wanted.removeprefix("bytes=").partition("-")
                begin, end = int(low), min(int(high or len(data) - 1) + 1, len(data))
            self._send(206 if wanted else 200, data[begin:end], begin, len(data) if wanted else None)

        def _send(self, code: int, body: bytes, begin: int = 0, whole: int | None = None) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Last-Modified", "Sun, 01 Nov 2026 00:00:00 GMT")
            self.send_header("ETag", '"x"')
            if whole is not None:
                self.send_header("Content-Range", f"bytes {begin}-{begin + len(body) - 1}/{whole}")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def _listing(objects: Objects, bucket: str, prefix: str, delimiter: str) -> bytes:
    """The answer of ListObjectsV2."""
    when = datetime(2026, 11, 1, tzinfo=UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    keys = sorted(name.partition("/")[2] for name in objects if name.startswith(f"{bucket}/"))
    folders, found = set(), []
    for key in keys:
        if not key.startswith(prefix):
            continue
        inner = key[len(prefix) :]
        if delimiter and delimiter in inner:
            folders.add(prefix + inner.partition(delimiter)[0] + delimiter)
            continue
        size = len(objects[f"{bucket}/{key}"])
        found.append(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{when}</LastModified><ETag>&quot;x&quot;</ETag>"
            f"<Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        )
    common = "".join(
        f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in sorted(folders)
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(found)}</KeyCount>"
        f"<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>{''.join(found)}{common}</ListBucketResult>"
    ).encode()
