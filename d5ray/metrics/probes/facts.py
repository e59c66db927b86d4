"""Facts about a machine that may not be known: then the reason stands in their place"""

import subprocess
from collections.abc import Callable
from importlib import metadata


def or_reason(fact: Callable[[], str]) -> str:
    """The fact as text, or "unavailable: reason"; nothing is guessed."""
    try:
        return fact() or "unavailable: empty"
    except metadata.PackageNotFoundError:
        return "unavailable: not installed"
    except (
        OSError, ValueError, AttributeError, ImportError, KeyError, RuntimeError, subprocess.SubprocessError,
    ) as error:  # fmt: skip
        return f"unavailable: {error}"
