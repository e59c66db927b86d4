"""What a run records beside the metrics of its agents, and the model that it keeps, as data"""

import math
from dataclasses import dataclass, field
from typing import Final, final

from d5ray.checks import KnownKeywords, check_choice, check_count, check_number
from d5ray.errors import ConfigurationError
from d5ray.identity.fields import LATER

SAVE_MODEL: Final = ("agent", "mean", "servers", "no")
LOOKS: Final = {  # seconds between two, in words and in numbers, where there are any; and why
    "monitor_seconds": ("at least 0.05", 0.05, math.inf, "looking at a node takes about half a millisecond"),
    "mirror_seconds": ("between 0.1 and 10", 0.1, 10.0, "Ray forgets a value that was not set for 20 s"),
}


@final
@dataclass(frozen=True)
class Recording(KnownKeywords):
    """What a run records beside what its agents measure in each step, and the model that it keeps.

    warmup_steps   steps at the start whose times are recorded as phase 'warmup'
    monitor_seconds  between two samples of each node's processors, memory and energy; 0: none
    mirror_seconds   between two exports of each actor's metrics to Ray, for Prometheus; 0: none
    save_model     the model that a completed run saves: that of the first 'agent', which has evaluated it,
                   the 'mean' of all, that of the 'servers', or 'no'
    save_model_bytes  a larger model is not saved

    Wrong values raise `ConfigurationError`.
    """

    warmup_steps: int = 10
    monitor_seconds: float = 1.0
    mirror_seconds: float = 1.0
    save_model: str = field(default="agent", metadata=LATER)
    save_model_bytes: int = field(default=2**30, metadata=LATER)

    def __post_init__(self) -> None:
        check_count("warmup_steps", self.warmup_steps, 0)
        for name, (bounds, low, high, why) in LOOKS.items():
            seconds = getattr(self, name)
            check_number(name, seconds, low=0.0, low_included=True)
            if seconds and not low <= seconds <= high:
                raise ConfigurationError(f"{name} is {seconds!r}: it must be 0, or {bounds}: {why}")
        check_choice("save_model", self.save_model, SAVE_MODEL)
        check_count("save_model_bytes", self.save_model_bytes, 0)
