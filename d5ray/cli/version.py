"""`d5ray --version`: the version of d5ray"""

import typer


def shown(wanted: bool) -> None:
    """Print the version and end, where that is wanted."""
    if not wanted:
        return
    from d5ray.display.console import out  # noqa: PLC0415 - quick for those who want something else
    from d5ray.metrics.probes.environment import d5ray_version  # noqa: PLC0415

    out().print(f"d5ray {d5ray_version()}")
    raise typer.Exit
