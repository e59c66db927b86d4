"""TensorFlow itself, imported without the notices that it prints when it starts"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from d5ray.errors import ConfigurationError

# 0 shows everything, 1 hides notices, 2 hides warnings too; read once, when TensorFlow's library is loaded.
LEVEL = "TF_CPP_MIN_LOG_LEVEL"
# Printed while the library is loaded, before it looks at the level.
NOTICES = (b"All log messages before absl::InitializeLog()", b"oneDNN custom operations are on")


@contextmanager
def _without_notices() -> Iterator[None]:
    """Let through what is written to the standard error stream, also from C++, except for `NOTICES`."""
    if os.environ.setdefault(LEVEL, "2") == "0" or "tensorflow" in sys.modules:
        yield
        return
    try:
        shown = os.dup(2)
    except OSError:  # the stream is closed, and nothing is seen
        yield
        return
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(shown, 2)
            os.close(shown)
            held.seek(0)
            for line in held:
                if not any(notice in line for notice in NOTICES):
                    os.write(2, line)


try:
    with _without_notices():
        import tensorflow as tf
except ImportError as error:
    raise ConfigurationError(
        f"TensorFlow cannot be imported ({error}): pip install 'd5ray[tensorflow]', or choose another "
        "framework"
    ) from error

__all__ = ["tf"]
