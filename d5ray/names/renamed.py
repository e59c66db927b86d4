"""Public names that are others now: the old one works for one more release, and in files of runs for ever"""

from collections.abc import Mapping
from types import MappingProxyType

RENAMED: Mapping[str, str] = MappingProxyType(  # the old name -> the public one
    {
        "FillDrain": "GPipe",
        "OneForwardOneBackward": "OneFOneB",
        "SequentialStages": "NaiveModelParallelism",
    }
)
