"""`d5ray keygen`: a pair of keys for signatures"""

from pathlib import Path
from typing import Annotated

import typer

from d5ray.cli import options
from d5ray.recipes.engine.command import Json


def keygen(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", callback=options.target, help="The private key; PATH.pub is the public one."
        ),
    ],
    json: Json = False,
) -> None:
    """Make a pair of keys for `d5ray run --sign PATH` and `d5ray check --key PATH.pub` (Ed25519, OpenSSH)."""
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
    from d5ray.metrics.record.signatures import make_keys  # noqa: PLC0415

    made = {"private": str(path), "public": str(make_keys(path))}
    run_tables.as_json(made) if json else run_tables.pairs(made)
