"""Small file systems that a test may fill up, its processes also in the place of those of the machine"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, megabytes: int) -> Iterator[Path]:
    """A new folder with a file system of that size; skips the test where none can be mounted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def unshared() -> list[str]:
    """The command before a line of `sh` that may mount what nobody else sees; skips where there is none."""
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec"]
    if subprocess.run(
        [*command, "mount -t tmpfs tmpfs /dev/shm"], capture_output=True, check=False
    ).returncode:
        pytest.skip("this machine gives a test no file systems of its own")
    return command
