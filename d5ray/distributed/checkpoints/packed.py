"""The state of an object as it is kept: JSON data, and the arrays that it names"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Packed:
    """JSON data in which arrays are named, and the arrays (flat, in host memory) by name."""

    data: Any = None
    arrays: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
