"""Names of before, of public things and attributes: they work for one release, in files of runs for ever"""

import warnings
from collections.abc import Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any, final

RENAMED: Mapping[str, str] = MappingProxyType(  # the old name -> the public one
    {
        "Averaged": "SynchronizedBuffers",
        "FillDrain": "GPipe",
        "Kept": "LocalBuffers",
        "Letter": "PeerMessage",
        "Looks": "SequentialStopping",
        "OneForwardOneBackward": "OneFOneB",
        "SequentialStages": "NaiveModelParallelism",
        "SpreadNetwork": "DeployedNetwork",
        "Untrained": "BufferPolicy",
        "spread": "deploy",
        "Series": "RunSeries",
    }
)


@final
class RenamedAttribute:
    """The former name of an attribute: it works for one release, with a warning that names the new one.

    now: the new name, or with a dot that of an attribute's attribute, which is only read.
    """

    def __init__(self, now: str) -> None:
        self._now = now

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        self._warn(owner)
        return attrgetter(self._now)(instance)

    def __set__(self, instance: Any, value: Any) -> None:
        self._warn(type(instance))
        setattr(instance, self._now, value)

    def _warn(self, owner: type) -> None:
        warnings.warn(
            f"{owner.__name__}.{self._name} is {self._now} now, and the old name goes with the next release",
            DeprecationWarning,
            stacklevel=3,
        )
