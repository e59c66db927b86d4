"""The certificate of a run, by which its processes know each other over TLS; made of the run's secret

Whoever knows the secret makes the same key (Ed25519) and the same certificate, which signs itself and is all
that either end accepts: an authority of which the run's processes are the only members. Nothing is written
to a disk and nothing travels but the secret.
"""

import datetime
import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from d5ray.distributed.wire.secret import Secret

ALWAYS = (datetime.datetime(2000, 1, 1), datetime.datetime(9999, 12, 31))  # no clock needs to be right
KEPT = 64  # runs whose contexts a process keeps


@lru_cache(maxsize=KEPT)
def contexts(secret: Secret) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The TLS contexts of who connects and who is connected to: 1.3 alone, both ends prove themselves."""
    key, certificate = _made(secret)
    made = []
    for side in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER):
        context = ssl.SSLContext(side)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # the certificate is the run's, wherever its processes are
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=certificate)
        with _readable(key + certificate) as path:
            context.load_cert_chain(path)
        if side is ssl.PROTOCOL_TLS_SERVER:
            context.num_tickets = 0  # nobody resumes
        made.append(context)
    return made[0], made[1]


def _made(secret: Secret) -> tuple[str, str]:
    """The run's key and certificate as PEM."""
    from cryptography import x509  # noqa: PLC0415 - takes a while, and shared memory alone needs it late
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    key = Ed25519PrivateKey.from_private_bytes(secret.mac(b"certificate"))
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "d5ray")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(ALWAYS[0])
        .not_valid_after(ALWAYS[1])
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, None)
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return private.decode(), certificate.public_bytes(pem).decode()


@contextmanager
def _readable(words: str) -> Iterator[str]:
    """A path from which OpenSSL reads these words: of memory on Linux, elsewhere of a file of this user."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("d5ray", os.MFD_CLOEXEC), "w") as memory:
            memory.write(words)
            memory.flush()
            yield f"/proc/self/fd/{memory.fileno()}"
        return
    with tempfile.TemporaryDirectory(prefix="d5ray-") as folder:
        path = Path(folder) / "key"  # in a folder of mode 700
        path.write_text(words)
        yield str(path)
