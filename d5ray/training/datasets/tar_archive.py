"""Read the expected members of a .tar.gz in memory; nothing is unpacked to disk."""

import gzip
import tarfile
import zlib
from collections.abc import Collection
from pathlib import Path

from d5ray.training.datasets.published_files import reading, unfit

MAX_MEMBER_BYTES = 256 << 20  # the largest member of a CIFAR archive has 148 MiB
MAX_ARCHIVE_BYTES = 512 << 20  # and the whole of it 178 MiB


def read_members(path: Path, folder: str, names: Collection[str]) -> dict[str, bytes]:
    """The contents of `folder/name` in a .tar.gz, for each name.

    The archive is read once, front to back. Other members are skipped, whatever they are called;
    a link or a second member of an expected name is refused, and so is an archive that grows beyond
    what the published ones have.

    Args:
        path: the archive.
        folder: the folder inside the archive.
        names: the members that must be there.

    Returns:
        From name to contents.

    Raises:
        DataError: a member is missing, is no plain file or too large, or the archive is damaged.
    """
    wanted = {f"{folder}/{name}": name for name in names}
    found: dict[str, bytes] = {}
    damaged = reading(path, tarfile.TarError, EOFError, zlib.error, ValueError)
    with damaged, _Bounded(path) as unzipped, tarfile.open(fileobj=unzipped, mode="r|") as archive:
        for member in archive:
            if member.name in wanted:
                name = wanted[member.name]
                if name in found:
                    raise unfit(path, f"{member.name} twice", "each member once")
                found[name] = _read_member(path, archive, member)
    if lacking := [name for name in names if name not in found]:
        raise unfit(path, "an archive without " + ", ".join(lacking), f"them in its folder {folder}/")
    return found


def _read_member(path: Path, archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(member) if member.isreg() else None
    if stream is None:
        raise unfit(path, f"{member.name} as a link or folder", "a plain file")
    if member.size > MAX_MEMBER_BYTES:
        raise unfit(path, f"{member.name} of {member.size} bytes", f"at most {MAX_MEMBER_BYTES} bytes")
    with stream:
        data = stream.read()
    if len(data) != member.size:
        raise unfit(path, f"{len(data)} bytes of {member.name}", f"{member.size} bytes")
    return data


class _Bounded(gzip.GzipFile):
    """Unpacks until more has come out than any published archive holds; then it is an error."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "rb")
        self.path = path
        self.left = MAX_ARCHIVE_BYTES

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.left -= len(data)
        if self.left < 0:
            raise unfit(self.path, "more bytes when unpacked", f"at most {MAX_ARCHIVE_BYTES}")
        return data
