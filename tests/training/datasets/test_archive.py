"""Claims about the archive reader: only expected plain members, bounded, nothing on disk."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from d5ray.errors import DataError
from d5ray.training.datasets import tar_archive
from d5ray.training.datasets.tar_archive import read_members


def entry(
    name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = len(content), kind, link
    return info, content


def write_archive(path: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as packed:
        for info, content in entries:
            packed.addfile(info, io.BytesIO(content))
    return path


def test_expected_members_are_returned_and_hostile_ones_skipped(tmp_path: Path) -> None:
    """Absolute names, names with .., links and devices are neither read nor written; order is free."""
    path = write_archive(
        tmp_path / "a.tar.gz",
        entry("../escaped", b"x"),
        entry(str(tmp_path / "absolute"), b"x"),
        entry("folder/two", b"second"),
        entry("other/one", b"not this"),
        entry("link", kind=tarfile.SYMTYPE, link="/etc/passwd"),
        entry("device", kind=tarfile.CHRTYPE),
        entry("folder/one", b"first"),
    )
    before = sorted(tmp_path.parent.rglob("*"))
    assert read_members(path, "folder", ["one", "two"]) == {"one": b"first", "two": b"second"}
    assert sorted(tmp_path.parent.rglob("*")) == before


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_an_expected_member_must_be_a_plain_file(kind: bytes, tmp_path: Path) -> None:
    """A link, folder or pipe under an expected name is refused, not followed."""
    path = write_archive(
        tmp_path / "a.tar.gz", entry("other", b"x"), entry("folder/one", kind=kind, link="other")
    )
    with pytest.raises(DataError, match="found folder/one as a link or folder, expected a plain file"):
        read_members(path, "folder", ["one"])


def test_a_member_that_comes_twice_is_refused(tmp_path: Path) -> None:
    """Of two members of one name neither is the right one."""
    path = write_archive(tmp_path / "a.tar.gz", entry("folder/one", b"1"), entry("folder/one", b"2"))
    with pytest.raises(DataError, match="found folder/one twice"):
        read_members(path, "folder", ["one"])


def test_a_member_larger_than_any_published_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member above the bound is refused by its header, one at the bound is read."""
    path = write_archive(tmp_path / "a.tar.gz", entry("folder/one", bytes(1000)))
    monkeypatch.setattr(tar_archive, "MAX_MEMBER_BYTES", 1000)
    assert read_members(path, "folder", ["one"]) == {"one": bytes(1000)}
    monkeypatch.setattr(tar_archive, "MAX_MEMBER_BYTES", 999)
    with pytest.raises(DataError, match="found folder/one of 1000 bytes, expected at most 999 bytes"):
        read_members(path, "folder", ["one"])


def test_an_archive_that_unpacks_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small file that unpacks to much more than the published archives is refused, whatever is in it."""
    path = write_archive(tmp_path / "a.tar.gz", entry("bomb", bytes(4 << 20)), entry("folder/one", b"1"))
    assert path.stat().st_size < 10_000
    monkeypatch.setattr(tar_archive, "MAX_ARCHIVE_BYTES", 1 << 20)
    with pytest.raises(DataError, match="more bytes when unpacked, expected at most 1048576"):
        read_members(path, "folder", ["one"])


def test_a_missing_member_is_named(tmp_path: Path) -> None:
    """An archive without an expected member is refused, and the member is named."""
    path = write_archive(tmp_path / "a.tar.gz", entry("folder/one", b"1"))
    with pytest.raises(DataError, match="without two, three, expected them in its folder folder/"):
        read_members(path, "folder", ["one", "two", "three"])


@pytest.mark.parametrize("damage", ["truncated", "not gzip", "empty", "gzip of no archive"])
def test_a_damaged_archive_is_refused(damage: str, tmp_path: Path) -> None:
    """An archive that ends early or is none is a DataError that names the file."""
    noise = bytes(value * 37 % 251 for value in range(60_000))
    path = write_archive(tmp_path / "a.tar.gz", entry("folder/one", noise))
    whole = path.read_bytes()
    if damage == "gzip of no archive":
        whole = gzip.compress(b"hello")
    path.write_bytes(
        {"truncated": whole[: len(whole) // 2], "not gzip": b"hello", "empty": b""}.get(damage, whole)
    )
    with pytest.raises(DataError, match=f"^{path}: found "):
        read_members(path, "folder", ["one"])
