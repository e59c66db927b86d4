"""Signatures of runs and series: of all their folders, made when they end, and held to a public key"""

from pathlib import Path
from typing import TYPE_CHECKING

from d5ray.metrics.judge.run_series import RunSeries
from d5ray.metrics.record.reader import Run
from d5ray.metrics.record.signatures import SIGNATURE, differences, public_key, sign

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def sign_all(folder: Path, key: "Ed25519PrivateKey") -> None:
    """Sign the folder of a run, or those of a series and of its runs."""
    if RunSeries.is_one(folder):
        for run in RunSeries(folder).runs:
            sign(run.folder, key)
    sign(folder, key)


def violations(found: Run | RunSeries, key: Path | None) -> list[str]:
    """The departures from what was signed, a sentence each.

    key: a file with the public key of who must have signed; without one, a folder need not be signed, and
    one that is must be as it was then. Raises `ConfigurationError` for a file that holds no key.
    """
    public = None if key is None else public_key(key)
    folders = [found.folder, *([run.folder for run in found.runs] if isinstance(found, RunSeries) else [])]
    asked = [folder for folder in folders if public is not None or (folder / SIGNATURE).exists()]
    return [text for folder in asked for text in differences(folder, public)]
