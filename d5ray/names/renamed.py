"""Public names that are others now: the old one works for one more release, and in files of runs for ever"""

from collections.abc import Mapping
from types import MappingProxyType

RENAMED: Mapping[str, str] = MappingProxyType(  # the old name -> the public one
    {
        "Averaged": "SynchronizedBuffers",
        "FillDrain": "GPipe",
        "Kept": "LocalBuffers",
        "Looks": "SequentialStopping",
        "OneForwardOneBackward": "OneFOneB",
        "SequentialStages": "NaiveModelParallelism",
        "SpreadNetwork": "DeployedNetwork",
        "Untrained": "BufferPolicy",
        "spread": "deploy",
        "Series": "RunSeries",
    }
)
