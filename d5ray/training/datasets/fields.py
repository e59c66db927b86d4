"""Fields: which part of a sample is its input and which its label, by key or by position"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from d5ray.checks import shown
from d5ray.errors import ConfigurationError, DataError, nearest

Name = str | int


@final
@dataclass(frozen=True)
class Fields:
    """The key or the position of a sample's inputs, or several of them, and of its label.

    Several names give a dictionary, several positions a tuple. Without a name inputs are what is left beside
    the label: that alone, or all of it together. Samples that are tuples have their label at the end where a
    name is given that they do not know; named tuples may.
    """

    inputs: Name | tuple[Name, ...] | None
    labels: Name

    def __post_init__(self) -> None:
        given: Any = self.inputs
        if isinstance(given, list):
            object.__setattr__(self, "inputs", tuple(given))
        names = tuple(given) if isinstance(given, (list, tuple)) and given else (given,)
        if given is None:
            names = ()
        for name, values in (("inputs", names), ("labels", (self.labels,))):
            for value in values:
                if isinstance(value, bool) or not isinstance(value, str | int):
                    raise ConfigurationError(f"{name} is {shown(value)}: it must be a key, or a position")

    def of(self, sample: Any, called: str) -> tuple[Any, Any]:
        """Inputs and label of a sample; raises `DataError` where it has no such part."""
        if isinstance(sample, Mapping):
            return self._of_keys(sample, called)
        if self.labels in getattr(sample, "_fields", ()):  # of a named tuple
            return self._of_keys(sample._asdict(), called)
        if isinstance(sample, Sequence) and not isinstance(sample, (str, bytes)):
            return self._of_positions(sample, called)
        raise DataError(
            f"{called}: found {type(sample).__name__}, expected a tuple (inputs, label) or a dictionary; of "
            "one that is its own label (inputs, inputs)"
        )

    def _of_keys(self, sample: Mapping[Any, Any], called: str) -> tuple[Any, Any]:
        def known(name: Name) -> Any:
            if name not in sample:
                raise DataError(f"{called} has no {name!r}: {nearest(name, [str(key) for key in sample])}")
            return sample[name]

        label = known(self.labels)
        if isinstance(self.inputs, tuple):
            return {name: known(name) for name in self.inputs}, label
        if self.inputs is not None:
            return known(self.inputs), label
        left = {key: value for key, value in sample.items() if key != self.labels}
        return (left if len(left) > 1 else self._only(list(left.values()), called)), label

    def _of_positions(self, sample: Sequence[Any], called: str) -> tuple[Any, Any]:
        kind, count = type(sample).__name__, len(sample)

        def at(name: Name) -> Any:
            if isinstance(name, str):
                raise DataError(f"{called} is a {kind} of {count}, which has no {name!r}: say its position")
            if not -count <= name < count or count < 2:
                raise DataError(
                    f"{called} is a {kind} of {count}, expected inputs and a label, one at {name}"
                )
            return sample[name]

        place = count - 1 if isinstance(self.labels, str) else self.labels
        label = at(place)
        if isinstance(self.inputs, tuple):
            return tuple(at(name) for name in self.inputs), label
        if self.inputs is not None:
            return at(self.inputs), label
        left = [each for number, each in enumerate(sample) if number != place % count]
        return (tuple(left) if len(left) > 1 else self._only(left, called)), label

    def _only(self, left: list[Any], called: str) -> Any:
        if not left:
            raise DataError(f"{called} has nothing beside its label {self.labels!r}, expected inputs")
        return left[0]
