"""A network whose passes are timed, as data"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class MeasuredNetwork:
    """network: "lenet", "resnet18" or "transformer", with these options of the catalogue's; the last takes
    sequences of tokens, as many as there are classes.
    """

    framework: str
    network: str
    sample_shape: tuple[int, ...]
    classes: int
    batch_size: int
    options: Mapping[str, Any] = field(default_factory=dict)
