"""A signature over a folder: the SHA-256 of every file in it, signed with an Ed25519 key (RFC 8032)

The key is a file that other tools make and read, too: OpenSSH's (`ssh-keygen -t ed25519`) or PEM.
"""

import base64
import binascii
import getpass
import hashlib
import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from d5ray.errors import ConfigurationError, StorageError
from d5ray.metrics.record.artifacts import LOG
from d5ray.metrics.record.files import storing

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SIGNATURE: Final = "signature.json"
CONTEXT: Final = b"d5ray signature of a folder, version 1\n"  # so that no other message can be meant
BLOCK_BYTES: Final = 2**20
MOST_SHOWN: Final = 5  # of files that differ


def make_keys(path: Path) -> Path:
    """Write a new private key (mode 600) and beside it the public one, PATH.pub, which is given back.

    Raises `ConfigurationError` where one of them exists: a key is never overwritten.
    """
    from cryptography.hazmat.primitives import serialization as form  # noqa: PLC0415 - takes a while
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    if not path.name:
        raise ConfigurationError(f"{path} is a folder: give the path of a file that is to be made")
    public_path = path.with_name(f"{path.name}.pub")
    for each in (path, public_path):
        if each.exists() or each.is_symlink():
            raise ConfigurationError(f"{each} exists, and a key is never overwritten: take another name")
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption())
    public = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    for each, data, mode in ((path, private, 0o600), (public_path, public + b" d5ray\n", 0o644)):
        with (
            storing(each),
            os.fdopen(os.open(each, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file,
        ):
            file.write(data)
    return public_path


def private_key(path: Path) -> "Ed25519PrivateKey":
    """The key in a file of OpenSSH's or in PEM; asks for its passphrase on a terminal.

    Raises `ConfigurationError` for a file that others can read, or that holds no private Ed25519 key.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        load_pem_private_key,
        load_ssh_private_key,
    )

    data = _read(path)
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise ConfigurationError(
            f"{path} can be read by others: a private key is yours alone (chmod 600 {path})"
        )
    load = load_ssh_private_key if b"BEGIN OPENSSH PRIVATE KEY" in data else load_pem_private_key
    password: bytes | None = None
    while True:
        try:
            found = load(data, password)
            break
        except TypeError:  # a passphrase is missing
            if password is not None or not sys.stdin.isatty():
                raise ConfigurationError(
                    f"{path} has a passphrase, and there is no terminal to ask for it: take a key without one"
                ) from None
            password = getpass.getpass(f"passphrase of {path}: ").encode()
        except Exception as error:  # of a damaged file cryptography raises many things
            raise _no_key(path, "private") from error
    if not isinstance(found, Ed25519PrivateKey):
        raise _no_key(path, "private")
    return found


def public_key(path: Path) -> "Ed25519PublicKey":
    """The key in a file: a line as in `authorized_keys`, or PEM. Raises `ConfigurationError`."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        load_pem_public_key,
        load_ssh_public_key,
    )

    data = _read(path)
    if b"PRIVATE KEY" in data:
        raise ConfigurationError(f"{path} is a private key: give the public one, which belongs to it")
    try:
        found = (load_pem_public_key if b"BEGIN PUBLIC KEY" in data else load_ssh_public_key)(data)
    except Exception as error:
        raise _no_key(path, "public") from error
    if not isinstance(found, Ed25519PublicKey):
        raise _no_key(path, "public")
    return found


def sign(folder: Path, key: "Ed25519PrivateKey") -> None:
    """Sign all files of a folder that is complete. Raises `StorageError`."""
    text = _canonical(manifest(folder))
    content = {
        "manifest": json.loads(text),
        "public_key": base64.b64encode(key.public_key().public_bytes_raw()).decode(),
        "signature": base64.b64encode(key.sign(CONTEXT + text)).decode(),
    }
    part = folder / f".{SIGNATURE}.part"
    with storing(folder / SIGNATURE):
        part.write_text(json.dumps(content, indent=1), encoding="utf-8")
        part.replace(folder / SIGNATURE)


def manifest(folder: Path) -> dict[str, Any]:
    """The name of the folder and the SHA-256 of every file in it, by its path, apart from the signature.

    Raises `StorageError` for what is neither file nor folder, such as a link, which can point elsewhere.
    """
    return {"folder": folder.resolve().name, "sha256": dict(sorted(_hashes(folder.resolve())))}


def differences(folder: Path, key: "Ed25519PublicKey | None") -> list[str]:
    """Why the folder is not what the owner of the key signed, a sentence each; empty where it is.

    key: None takes whichever key the signature names, so that only changes since then are found.
    """
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    try:
        content = json.loads((folder / SIGNATURE).read_bytes())
        signed, signature = content["manifest"], base64.b64decode(content["signature"], validate=True)
        recorded = base64.b64decode(content["public_key"], validate=True)
        verifying = Ed25519PublicKey.from_public_bytes(recorded) if key is None else key
        listed = {str(name): str(digest) for name, digest in signed["sha256"].items()}
        text = _canonical(signed)
    except FileNotFoundError:
        return [f"{folder.name} is not signed: there is no {SIGNATURE}"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError, binascii.Error):
        return [f"{SIGNATURE} of {folder.name} is no signature that d5ray writes"]
    try:
        verifying.verify(signature, CONTEXT + text)
    except InvalidSignature:
        if key is not None and recorded != key.public_bytes_raw():
            return [f"{folder.name} is signed with another key ({_fingerprint(recorded)})"]
        return [f"the signature of {folder.name} does not fit what it signs: it was changed since"]
    try:
        found = manifest(folder)
    except StorageError as error:
        return [str(error)]
    if found["folder"] != signed.get("folder"):
        return [f"the folder {found['folder']} was signed as {signed.get('folder')}"]
    return [*_compared(found["sha256"], listed)]


def signer(folder: Path) -> str:
    """The fingerprint of the key that a folder's signature names, as OpenSSH shows it; empty without one."""
    try:
        return _fingerprint(base64.b64decode(json.loads((folder / SIGNATURE).read_bytes())["public_key"]))
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _compared(found: dict[str, str], listed: dict[str, str]) -> Iterator[str]:
    for what, names in (
        (
            "was changed since it was signed",
            [n for n in found.keys() & listed.keys() if found[n] != listed[n]],
        ),
        ("was signed, and is missing", listed.keys() - found.keys()),
        ("was added since it was signed", found.keys() - listed.keys()),
    ):
        ordered = sorted(names)
        yield from (f"{name!r} {what}" for name in ordered[:MOST_SHOWN])
        if len(ordered) > MOST_SHOWN:
            yield f"so it is with {len(ordered) - MOST_SHOWN} more"


def _hashes(folder: Path) -> Iterator[tuple[str, str]]:
    for path in folder.rglob("*"):
        kind = path.lstat().st_mode
        name = path.relative_to(folder).as_posix()
        if stat.S_ISDIR(kind) or name in (SIGNATURE, LOG):
            continue
        if not stat.S_ISREG(kind):
            raise StorageError(
                f"{path} is neither a file nor a folder: a link can point elsewhere, remove it"
            )
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
        yield name, digest.hexdigest()


def _canonical(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _fingerprint(raw: bytes) -> str:
    """The fingerprint as `ssh-keygen -l` shows it."""
    words = (b"ssh-ed25519", raw)
    wire = b"".join(len(word).to_bytes(4, "big") + word for word in words)
    return "SHA256:" + base64.b64encode(hashlib.sha256(wire).digest()).decode().rstrip("=")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"the key {path} cannot be read ({error.strerror or error}): d5ray keygen makes a pair"
        ) from error


def _no_key(path: Path, what: str) -> ConfigurationError:
    return ConfigurationError(
        f"{path} holds no {what} Ed25519 key in OpenSSH's form or in PEM: d5ray keygen makes a pair"
    )
