"""Values that hardly any parameter takes"""

import math
from pathlib import Path
from typing import Any

import numpy as np

MISSING, UNEXPECTED = "missing", "unexpected"


def wrong_values(folder: Path) -> dict[str, Any]:
    """By a name that says what is wrong with them."""
    (folder / "folder").mkdir(exist_ok=True)
    (folder / "file").write_text("not what it should be")
    return {
        "nan": math.nan,
        "inf": math.inf,
        "-inf": -math.inf,
        "-1": -1,
        "0": 0,
        "-0.5": -0.5,
        "2**200": 2**200,
        "10**12": 10**12,
        "10**9": 10**9,
        "half": 0.5,
        "complex": 1j,
        "empty text": "",
        "text": "nonsense",
        "control characters": "\x1b[2J\x00\u202eü\ud800",
        "long text": "x" * 10**5,
        "a folder's path": folder / "folder",
        "a file's path": folder / "file",
        "a folder's path as a text": str(folder / "folder"),
        "no file": str(folder / "nowhere" / "nothing"),
        "None": None,
        "True": True,
        "bytes": b"\xff",
        "an empty list": [],
        "an empty dictionary": {},
        "a list of nan": [math.nan],
        "a tuple of -1": (-1, -1),
        "a dictionary": {"x": -1},
        "an array": np.array([math.nan, 1.0]),
        "an array of objects": np.array([None, "x"], object),
        "an object": object(),
        "a class": int,
        "a function": len,
    }
