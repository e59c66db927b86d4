"""Claims about signatures: what was signed is found as it was, and every change is named"""

import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from d5ray.errors import ConfigurationError
from d5ray.metrics.record.signatures import (
    SIGNATURE,
    differences,
    make_keys,
    private_key,
    public_key,
    sign,
    signer,
)
from tests.conftest import d5ray


@pytest.fixture
def key(tmp_path: Path) -> Path:
    make_keys(tmp_path / "key")
    return tmp_path / "key"


@pytest.fixture
def signed(tmp_path: Path, key: Path) -> Path:
    """A folder with files in it and below, signed."""
    folder = tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)
    for name in ("samples.parquet", "runs.parquet", "checkpoints/manifest.json", ".hidden"):
        (folder / name).write_bytes(name.encode() * 1000)
    sign(folder, private_key(key))
    return folder


def public(key: Path) -> Path:
    return key.with_name("key.pub")


def test_what_was_signed_is_found_as_it_was(signed: Path, key: Path, tmp_path: Path) -> None:
    """By the public key, and by none; also a copy elsewhere."""
    copy = tmp_path / "elsewhere" / "run"
    shutil.copytree(signed, copy)
    for folder in (signed, copy):
        assert differences(folder, public_key(public(key))) == []
        assert differences(folder, None) == []


def change(name: str) -> Callable[[Path], object]:
    """One bit of one byte."""

    def flip(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        data[len(data) // 2] ^= 1
        (folder / name).write_bytes(data)

    return flip


def link(folder: Path) -> None:
    (folder / "samples.parquet").unlink()
    (folder / "samples.parquet").symlink_to("/etc/hostname")


def other_name(folder: Path) -> None:
    """The hash of a file in the manifest exchanged."""
    text = (folder / SIGNATURE).read_text()
    (folder / SIGNATURE).write_text(text.replace('"runs.parquet"', '"Runs.parquet"'))


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a changed byte": (change("samples.parquet"), "'samples.parquet' was changed since it was signed"),
    "a changed byte below": (change("checkpoints/manifest.json"), "'checkpoints/manifest.json' was changed"),
    "a changed hidden file": (change(".hidden"), "'.hidden' was changed"),
    "a missing file": (lambda f: (f / "runs.parquet").unlink(), "'runs.parquet' was signed, and is missing"),
    "a file too many": (lambda f: (f / "more").write_text(""), "'more' was added since it was signed"),
    "a file below": (lambda f: (f / "checkpoints" / "x").write_text(""), "'checkpoints/x' was added"),
    "a link in a file's place": (link, "is neither a file nor a folder"),
    "another manifest": (other_name, "does not fit what it signs"),
    "no signature": (lambda f: (f / SIGNATURE).unlink(), "run is not signed"),
    "a broken signature": (
        lambda f: (f / SIGNATURE).write_bytes(b"\xff{"),
        "is no signature that d5ray writes",
    ),
    "a signature of nothing": (
        lambda f: (f / SIGNATURE).write_text("[]"),
        "is no signature that d5ray writes",
    ),
    "another name": (lambda f: f.rename(f.with_name("better")), "the folder better was signed as run"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_is_named(name: str, signed: Path, key: Path) -> None:
    make, words = CHANGES[name]
    make(signed)
    folder = signed if signed.exists() else signed.with_name("better")
    assert any(words in text for text in differences(folder, public_key(public(key))))


def test_another_key_is_named(signed: Path, tmp_path: Path) -> None:
    """Who signs again with a key of his own does not pass for the first."""
    other = make_keys(tmp_path / "other")
    (told,) = differences(signed, public_key(other))
    assert told == f"run is signed with another key ({signer(signed)})"
    sign(signed, private_key(tmp_path / "other"))
    assert differences(signed, public_key(other)) == []
    assert "signed with another key" in differences(signed, public_key(tmp_path / "key.pub"))[0]


def test_keys_are_private_and_never_overwritten(key: Path) -> None:
    """Mode 600; a second pair is refused while either file is there, and the first stays as it was."""
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    before = key.read_bytes()
    for missing in (None, key.with_name("key.pub")):
        if missing is not None:
            missing.unlink()
        with pytest.raises(ConfigurationError, match="exists, and a key is never overwritten"):
            make_keys(key)
    assert key.read_bytes() == before
    key.chmod(0o640)
    with pytest.raises(ConfigurationError, match="can be read by others"):
        private_key(key)


@pytest.mark.parametrize("encoding", ["PEM", "OpenSSH"])
def test_keys_that_other_tools_make_are_read(encoding: str, tmp_path: Path) -> None:
    """PKCS #8 and SubjectPublicKeyInfo as OpenSSL writes them, and OpenSSH's own form."""
    made = Ed25519PrivateKey.generate()
    file, pub = tmp_path / "k", tmp_path / "k.pub"
    inner = form.PrivateFormat.PKCS8 if encoding == "PEM" else form.PrivateFormat.OpenSSH
    file.write_bytes(made.private_bytes(form.Encoding.PEM, inner, form.NoEncryption()))
    file.chmod(0o600)
    ways = {
        "PEM": (form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo),
        "OpenSSH": (form.Encoding.OpenSSH, form.PublicFormat.OpenSSH),
    }
    pub.write_bytes(made.public_key().public_bytes(*ways[encoding]))
    assert private_key(file).private_bytes_raw() == made.private_bytes_raw()
    assert public_key(pub).public_bytes_raw() == made.public_key().public_bytes_raw()


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH is not installed")
def test_ssh_keygen_and_d5ray_read_each_others_keys(key: Path, tmp_path: Path) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "theirs")], check=True
    )
    private_key(tmp_path / "theirs")
    public_key(tmp_path / "theirs.pub")
    done = subprocess.run(["ssh-keygen", "-y", "-f", str(key)], capture_output=True, text=True, check=True)
    assert done.stdout.split()[:2] == public(key).read_text().split()[:2]


def test_what_is_no_key_is_an_error(key: Path, tmp_path: Path) -> None:
    """Of another kind, a private one for a public one, with a passphrase, text, none at all."""
    other, locked, text = (tmp_path / name for name in ("ec", "locked", "text"))
    pem, pkcs8 = form.Encoding.PEM, form.PrivateFormat.PKCS8
    other.write_bytes(ec.generate_private_key(ec.SECP256R1()).private_bytes(pem, pkcs8, form.NoEncryption()))
    secret = form.BestAvailableEncryption(b"secret")
    locked.write_bytes(Ed25519PrivateKey.generate().private_bytes(pem, pkcs8, secret))
    text.write_text("no key")
    for file in (other, locked, text):
        file.chmod(0o600)
    for load, file, words in (
        (private_key, other, "holds no private Ed25519 key"), (private_key, locked, "has a passphrase"),
        (private_key, text, "holds no private"), (private_key, tmp_path / "none", "cannot be read"),
        (private_key, public(key), "."), (public_key, key, "is a private key"),
        (public_key, text, "holds no public"), (public_key, tmp_path, "cannot be read"),
    ):  # fmt: skip
        if file.is_file():
            file.chmod(0o600)
        with pytest.raises(ConfigurationError, match=words):
            load(file)


@pytest.mark.full
def test_the_command_makes_a_pair(tmp_path: Path) -> None:
    """Once; then it is an error, with exit code 3."""
    done = d5ray("keygen", str(tmp_path / "mine"), "--json")
    assert (done.code, done.json) == (0, {"private": f"{tmp_path}/mine", "public": f"{tmp_path}/mine.pub"})
    assert d5ray("keygen", str(tmp_path / "mine")).code == 3
