"""Claims about manifests: every change is named, and other tools check and sign them"""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from d5ray.metrics.record import manifest
from tests.conftest import ran

NAMES = ("samples.parquet", "checkpoints/manifest.json", ".hidden", "a b", "back\\slash", "two\nlines")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files in it and below, and a link that points elsewhere."""
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    for name in NAMES:
        (tmp_path / "run" / name).write_bytes(name.encode() * 1000)
    (tmp_path / "run" / "elsewhere").symlink_to("/dev/zero")
    manifest.write(tmp_path / "run")
    return tmp_path / "run"


def changed(name: str) -> Callable[[Path], object]:
    """One bit of one byte."""

    def flip(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        data[len(data) // 2] ^= 1
        (folder / name).write_bytes(data)

    return flip


def linked(folder: Path) -> None:
    """A link to the same bytes in the place of a file."""
    (folder / "a b").rename(folder.with_name("a b"))
    (folder / "a b").symlink_to(folder.with_name("a b"))


CHANGES: dict[str, tuple[Callable[[Path], object], str | None]] = {
    "nothing": (lambda folder: None, None),
    "a copy": (lambda folder: shutil.copytree(folder, folder.with_name("copy"), symlinks=True), None),
    "a file more": (lambda folder: (folder / "notes").write_text(""), None),
    "no manifest": (lambda folder: (folder / manifest.MANIFEST).unlink(), None),
    **{f"a changed byte of {name!r}": (changed(name), name) for name in NAMES[:4]},
    "a missing file": (lambda folder: (folder / "samples.parquet").unlink(), "samples.parquet"),
    "a link": (linked, "a b"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_is_named_by_d5ray_and_by_sha256sum(name: str, folder: Path) -> None:
    """A link has the bytes that it points to, which d5ray alone does not believe."""
    change, file = CHANGES[name]
    change(folder)
    told = manifest.differences(folder)
    assert [text.split(" is not what")[0] for text in told] == ([] if file is None else [repr(file)])
    if (folder / manifest.MANIFEST).exists() and name != "a link":
        checked = ran("sha256sum", "--check", "--quiet", manifest.MANIFEST, cwd=folder, fails=True)
        assert (checked.code == 0) is (file is None), checked
        assert file is None or file in checked.out


def test_many_changes_are_counted(folder: Path) -> None:
    for name in NAMES:
        (folder / name).unlink()
    told = manifest.differences(folder)
    assert (len(told), told[-1]) == (6, "so it is with 1 more files")


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH is not installed")
def test_ssh_keygen_signs_it_and_finds_a_change_of_it(folder: Path, tmp_path: Path) -> None:
    """The signature beside it is no change of the run."""
    key, signers = tmp_path / "key", tmp_path / "signers"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    signers.write_text(f"me@example.org {key.with_suffix('.pub').read_text()}")
    file = folder / manifest.MANIFEST
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", "d5ray", str(file)], check=True)
    assert manifest.differences(folder) == []
    verify = [
        "ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", "me@example.org", "-n", "d5ray",
        "-s", str(folder / manifest.SIGNATURE),
    ]  # fmt: skip
    text = file.read_bytes()
    assert subprocess.run(verify, input=text, capture_output=True).returncode == 0
    assert subprocess.run(verify, input=text.replace(b"a b", b"a c"), capture_output=True).returncode != 0
